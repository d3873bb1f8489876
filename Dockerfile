# docker run --rm --network host --user "$(id -u)" --volume "$PWD:/reports" IMAGE --bootstrap localhost:9092 --report junit
FROM python:3.13-trixie AS build
COPY . /source
RUN python -m pip wheel --no-cache-dir --wheel-dir /wheels "/source[cli]"

FROM python:3.13-slim-trixie
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-index /wheels/*.whl && useradd --create-home --uid 1000 kohort
USER 1000
WORKDIR /reports
ENTRYPOINT ["kohort", "conformance"]
CMD ["--help"]
