// Checks the built site for serious accessibility errors, and what its copy buttons copy: `make accessibility`.
//
// Every page is checked at desktop width in light colours. The pages of EVERY_WAY are also checked at phone width and in
// dark colours, and their pictures are written to out/screenshots. CHROME is the browser's path.
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const tools = createRequire(resolve("out/site-tools/package.json"));
const puppeteer = tools("puppeteer-core");

const SITE = resolve("out/site");
const PICTURES = resolve("out/screenshots");
const AXE = tools.resolve("axe-core/axe.min.js");
const SERIOUS = new Set(["serious", "critical"]);
const EVERY_WAY = [
  "index.html",
  "quickstart/index.html",
  "reference/consumer/index.html",
  "tutorials/group/index.html",
  "benchmarks/index.html",
  "states/index.html",
];
const SCHEMES = { light: "default", dark: "slate" };
const WIDTHS = { desktop: 1280, phone: 390 };

// Reports of conformance runs are pages of their own, and not of the site's theme.
const ofTheme = (page) => page.endsWith("index.html") && (!page.startsWith("conformance/") || page === "conformance/index.html");

const pages = readdirSync(SITE, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => relative(SITE, join(entry.parentPath, entry.name)))
  .filter(ofTheme)
  .sort();

const ways = (page) =>
  EVERY_WAY.includes(page)
    ? Object.keys(WIDTHS).flatMap((width) => ["light", "dark"].map((scheme) => ({ page, width, scheme })))
    : [{ page, width: "desktop", scheme: "light" }];

const chrome = process.env.CHROME ?? execFileSync("which", ["chromium"]).toString().trim();
const browser = await puppeteer.launch({ executablePath: chrome, args: ["--no-sandbox", "--allow-file-access-from-files"] });
mkdirSync(PICTURES, { recursive: true });
let found = 0;
try {
  for (const { page, width, scheme } of pages.flatMap(ways)) {
    const context = await browser.createBrowserContext(); // the site stores the colours of a visitor
    const tab = await context.newPage();
    await tab.setViewport({ width: WIDTHS[width], height: 900 });
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await tab.goto(pathToFileURL(join(SITE, page)).href, { waitUntil: "load", timeout: 120_000 });
    const shown = await tab.evaluate(() => document.body.getAttribute("data-md-color-scheme"));
    if (shown !== SCHEMES[scheme]) throw new Error(`${page} shows ${shown} in ${scheme} colours`);
    await tab.addScriptTag({ path: AXE });
    const violations = await tab.evaluate(async () => {
      const { violations } = await axe.run(document, { resultTypes: ["violations"] });
      return violations.map(({ id, impact, help, nodes }) => ({ id, impact, help, nodes: nodes.map((node) => node.target.join(" ")) }));
    });
    for (const { id, impact, help, nodes } of violations.filter((one) => SERIOUS.has(one.impact))) {
      found += 1;
      console.log(`${page} (${width}, ${scheme}): ${impact}: ${id}: ${help}\n  ${nodes.length} places, such as ${nodes[0]}`);
    }
    if (EVERY_WAY.includes(page)) {
      await tab.screenshot({ path: join(PICTURES, `${page.replace(/\/?index\.html$/, "").replaceAll("/", "-") || "home"}-${width}-${scheme}.png`) });
    }
    const copied = await tab.evaluate(() => {
      const block = document.querySelector("code:has(> .gp)");
      if (block === null) return "";
      block.setAttribute("data-md-copying", ""); // as the theme's copy button does
      return block.innerText;
    });
    if (copied.includes("$ ")) {
      found += 1;
      console.log(`${page}: the copy button copies the prompt: ${copied}`);
    }
    await context.close();
  }
} finally {
  await browser.close();
}
console.log(`${pages.length} pages, ${found} errors`);
process.exit(found ? 1 : 0);
