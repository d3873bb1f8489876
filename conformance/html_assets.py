"""Style and script of the HTML report, without libraries or network requests."""

# ruff: noqa: E501, RUF001

STYLE = """
:root{color-scheme:light dark;--bg:#fbfaf7;--fg:#1e2126;--dim:#697079;--line:#dfdcd4;--card:#fff;--accent:#2b5fa8;
--pass:#3d8b5a;--passbg:#dcefe2;--fail:#b3261e;--failbg:#f9d8d4;--deviation:#8a5a00;--deviationbg:#fbe7bf;
--na:#8b9097;--nabg:#ecebe7;--blocked:#6b3fa0;--blockedbg:#e8dcf6}
@media(prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#e4e5e7;--dim:#9aa1aa;--line:#32363d;--card:#1e2126;
--accent:#8ab4f8;--pass:#7fd19b;--passbg:#1d3a28;--fail:#ff9c92;--failbg:#572320;--deviation:#f4c66a;
--deviationbg:#48360f;--na:#7d848d;--nabg:#282b31;--blocked:#c9a8f5;--blockedbg:#3b2a55}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif}
header{position:sticky;top:0;z-index:3;background:var(--bg);border-bottom:1px solid var(--line);padding:12px 20px 10px}
h1{font-size:20px;margin:0 0 2px}
#facts{color:var(--dim);margin-bottom:8px}
#facts code{background:var(--nabg);padding:1px 6px;border-radius:4px;color:var(--fg);overflow-wrap:anywhere}
#facts .warn{color:var(--fail);font-weight:600}
#chips{display:flex;flex-wrap:wrap;gap:6px;margin-bottom:8px}
.chip{border:1px solid var(--line);background:var(--card);color:inherit;border-radius:999px;padding:3px 12px;
font:inherit;cursor:pointer}
.chip[aria-pressed=true]{border-color:var(--accent);box-shadow:inset 0 0 0 1px var(--accent)}
.chip b{margin-right:4px}
#filters{display:flex;gap:8px;align-items:center;flex-wrap:wrap}
#filters input{width:260px}
#filters input,#filters select{font:inherit;padding:4px 8px;border:1px solid var(--line);border-radius:6px;
background:var(--card);color:inherit}
#shown{color:var(--dim)}
main{display:flex;align-items:flex-start}
#matrix{flex:1 1 auto;min-width:0;padding:0 20px 40px;overflow-x:auto}
h2{font-size:15px;margin:22px 0 6px}
h2 small{font-weight:400;color:var(--dim);margin-left:8px}
table{border-collapse:collapse;width:100%;max-width:1120px}
tbody tr:hover td{background:color-mix(in srgb,var(--accent) 7%,transparent)}
th{font-weight:400;color:var(--dim);font-size:12px;padding:2px 0;text-align:center}
th:first-child{text-align:left}
td{border-top:1px solid var(--line);padding:2px 0;vertical-align:middle}
td.name{padding:2px 12px 2px 54px;text-indent:-54px}
td.name .id{display:inline-block;min-width:54px;text-indent:0;font-weight:600;font-variant-numeric:tabular-nums}
td.name .api,td.name .why{color:var(--dim);font-size:12px;margin-left:6px}
td.c{width:30px;text-align:center}
.cell{width:26px;height:22px;border:0;border-radius:4px;font:600 12px/22px system-ui,sans-serif;cursor:pointer;padding:0}
.cell:focus-visible,.chip:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
.cell.on{box-shadow:0 0 0 2px var(--accent)}
.pass{background:var(--passbg);color:var(--pass)}.fail{background:var(--failbg);color:var(--fail)}
.deviation{background:var(--deviationbg);color:var(--deviation)}.blocked{background:var(--blockedbg);color:var(--blocked)}
.na{background:var(--nabg);color:var(--na)}
#detail{flex:0 0 min(46vw,680px);position:sticky;top:var(--head,150px);height:calc(100vh - var(--head,150px));
overflow:auto;border-left:1px solid var(--line);background:var(--card);padding:14px 18px 30px}
#detail h3{margin:0 30px 4px 0;font-size:16px}
#detail .close{position:absolute;right:12px;top:10px;border:0;background:none;color:var(--dim);font-size:20px;cursor:pointer}
#detail dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 12px;margin:8px 0}
#detail dt{color:var(--dim)}#detail dd{margin:0;overflow-wrap:anywhere}
.badge{display:inline-block;border-radius:4px;padding:1px 8px;font-weight:600}
.cmd{display:flex;gap:8px;align-items:flex-start;margin:10px 0}
.cmd code{flex:1;background:var(--nabg);padding:6px 8px;border-radius:6px;font:12px/1.4 ui-monospace,monospace;
overflow-wrap:anywhere}
.cmd button{font:inherit;border:1px solid var(--line);background:var(--card);color:inherit;border-radius:6px;cursor:pointer;
padding:4px 10px}
.frame{border-left:3px solid var(--line);margin:4px 0;padding:1px 0 1px 8px;font:12px/1.45 ui-monospace,monospace}
.frame.sent{border-color:var(--accent)}
.frame summary{cursor:pointer;list-style:none;overflow-wrap:anywhere}
.frame summary::before{content:"▸";display:inline-block;width:14px;color:var(--dim)}
.frame[open] summary::before{content:"▾"}
.frame .at{color:var(--dim)}.frame .code{color:var(--fail);font-weight:600}.frame .ok{color:var(--pass)}
.frame pre{margin:4px 0 6px 14px;white-space:pre-wrap;overflow-wrap:anywhere}
@media(max-width:1000px){main{display:block}#detail{position:fixed;inset:auto 0 0 0;height:60vh;border-top:2px solid var(--line)}}
@media print{header{position:static}#filters,#chips{display:none}}
"""

SCRIPT = r"""
"use strict";
const $ = id => document.getElementById(id);
const SIGN = {"pass": "✓", "fail": "✗", "deviation": "~", "not applicable": "–", "blocked": "!"};
const KLASS = v => v === "not applicable" ? "na" : v;
const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes))
    key.startsWith("on") ? node.addEventListener(key.slice(2), value) : node.setAttribute(key, value);
  node.append(...children);
  return node;
};

async function unpack() {
  const raw = Uint8Array.from(atob($("data").textContent.trim()), c => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

let data, byCheck = new Map(), wanted = new Set(), current = null;

function matches(check) {
  const text = $("search").value.trim().toLowerCase(), results = byCheck.get(check.id) || [];
  if ($("section").value && check.id[0] !== $("section").value) return false;
  if ($("kind").value && check.kind !== $("kind").value) return false;
  if (wanted.size && !results.some(r => wanted.has(r.verdict))) return false;
  if (!text) return results.length > 0;
  const hay = [check.id, check.title, check.subject, check.source, check.expected, check.note,
               ...results.map(r => r.reason || "")].join(" ").toLowerCase();
  return results.length > 0 && text.split(/\s+/).every(word => hay.includes(word));
}

function cell(result, check) {
  const label = `${check.id}${result.version < 0 ? "" : " version " + result.version}: ${result.verdict}` +
    (result.reason ? ": " + result.reason : "");
  return el("button", {class: "cell " + KLASS(result.verdict), title: label, "aria-label": label,
    "data-cell": check.id + "@" + result.version, onclick: event => show(check, result, event.currentTarget)},
    SIGN[result.verdict]);
}

function draw() {
  const shown = data.checks.filter(matches), out = [];
  for (const [letter, title] of Object.entries(data.sections)) {
    const checks = shown.filter(check => check.id[0] === letter).sort((a, b) => order(a.id) - order(b.id) || (a.id < b.id ? -1 : 1));
    if (!checks.length) continue;
    const all = checks.flatMap(check => byCheck.get(check.id));
    const columns = [...new Set(all.map(r => r.version).filter(v => v >= 0))].sort((a, b) => a - b);
    const good = all.filter(r => r.verdict === "pass").length;
    out.push(el("h2", {}, `${letter} · ${title}`, el("small", {}, `${good} of ${all.length} cells pass`)));
    const head = el("tr", {}, el("th", {}, "check"), ...columns.map(v => el("th", {}, "v" + v)));
    const rows = checks.map(check => {
      const results = byCheck.get(check.id), whole = results.find(r => r.version < 0);
      const name = el("td", {class: "name"}, el("span", {class: "id"}, check.id), check.title,
        el("span", {class: "api"}, check.subject));
      if (whole) {
        name.append(el("span", {class: "why"}, "· " + whole.reason));
        const button = cell(whole, check);
        button.style.width = "100%";
        return el("tr", {}, name, el("td", {class: "c", colspan: String(Math.max(columns.length, 1))}, button));
      }
      return el("tr", {}, name, ...columns.map(v => {
        const result = results.find(r => r.version === v);
        return el("td", {class: "c"}, result ? cell(result, check) : "");
      }));
    });
    out.push(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
  }
  $("matrix").replaceChildren(...out);
  $("shown").textContent = `${shown.length} of ${data.checks.length} checks`;
}

const order = id => Number(/\d+/.exec(id)[0]);

const line = value => Array.isArray(value) ? "[" + value.map(line).join(", ") + "]" :
  value && typeof value === "object" ? "{" + Object.entries(value).map(([k, v]) => k + ": " + line(v)).join(", ") + "}" :
  String(value);

function frame([at, connection, sent, api, version, body]) {
  const summary = el("summary", {}, el("span", {class: "at"}, `${at} ms #${connection} `),
    `${sent ? "→" : "←"} ${api}${version >= 0 ? " v" + version : ""} `);
  const text = typeof body === "string" ? body : line(body);
  const code = /error_code: (-?\d+ [A-Z_]+)/g, found = [...text.matchAll(code)].map(m => m[1]);
  for (const each of new Set(found)) summary.append(el("span", {class: each === "0 NONE" ? "ok" : "code"}, each + " "));
  summary.append(el("span", {class: "at"}, text.length > 110 ? text.slice(0, 110) + " …" : text));
  const full = typeof body === "string" ? body : JSON.stringify(body, null, 2);
  return el("details", {class: "frame" + (sent ? " sent" : "")}, summary, el("pre", {}, full));
}

function show(check, result, button) {
  document.querySelectorAll(".cell.on").forEach(each => each.classList.remove("on"));
  button.classList.add("on");
  current = button;
  const name = result.version < 0 ? check.id : `${check.id}@${result.version}`;
  const facts = [["expected", check.expected], ["class", `${check.kind}: ${check.kindText}`], ["source", check.source]];
  if (result.what) facts.push(["looked at", result.what], ["wanted", result.expected], ["seen", result.observed]);
  else if (result.reason) facts.push(["reason", result.reason]);
  if (check.note) facts.push(["note", check.note]);
  if (check.needs.length) facts.push(["needs", check.needs.join("; ")]);
  facts.push(["took", result.took_ms + " ms"]);
  const command = `kohort conformance --bootstrap ${data.report.address} --only ${name}` +
    (check.needs.some(need => need.includes("--leave-traces")) ? " --leave-traces" : "");
  const frames = (result.frames || []).map(frame);
  if (result.frames_left_out) frames.push(el("p", {}, `${result.frames_left_out} frames more`));
  $("detail").replaceChildren(
    el("button", {class: "close", title: "Close (Esc)", onclick: hide}, "×"),
    el("h3", {}, `${name} · ${check.title}`),
    el("div", {}, el("span", {class: "badge " + KLASS(result.verdict)}, result.verdict),
      ` ${check.subject}${result.version >= 0 ? " v" + result.version : ""}`),
    el("dl", {}, ...facts.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
    el("div", {class: "cmd"}, el("code", {}, command),
      el("button", {onclick: event => { navigator.clipboard.writeText(command); event.target.textContent = "copied"; }}, "copy")),
    ...(frames.length ? [el("h4", {}, "What went over the wire")] : []), ...frames);
  $("detail").hidden = false;
  $("detail").scrollTop = 0;
  history.replaceState(null, "", "#" + name);
}

function hide() {
  $("detail").hidden = true;
  history.replaceState(null, "", "#");
  if (current) { current.classList.remove("on"); current.focus(); }
}

function facts() {
  const r = data.report, features = Object.entries(r.features).map(([k, v]) => `${k}=${v}`).join(", ");
  $("facts").append(`${r.address} · ${r.brokers} broker${r.brokers === 1 ? "" : "s"} · ${r.started} · ${r.took_s} s`,
    features ? ` · ${features}` : "");
  if (r.command) $("facts").append(el("br"), el("code", {}, r.command));
  if (r.ended_early) $("facts").append(el("br"), el("span", {class: "warn"}, "The run ended early: " + r.ended_early));
  if (r.left_behind.length)
    $("facts").append(el("br"), `Could not be cleaned up: ${r.left_behind.length} (${r.left_behind.slice(0, 3).join("; ")})`);
  for (const verdict of Object.keys(SIGN)) {
    const count = r.results.filter(each => each.verdict === verdict).length;
    if (!count) continue;
    $("chips").append(el("button", {class: "chip", "aria-pressed": "false", onclick: event => {
      const chip = event.currentTarget, on = wanted.has(verdict);
      on ? wanted.delete(verdict) : wanted.add(verdict);
      chip.setAttribute("aria-pressed", String(!on));
      draw();
    }}, el("b", {class: "badge " + KLASS(verdict)}, SIGN[verdict]), `${count} ${verdict}`));
  }
  for (const [letter, title] of Object.entries(data.sections))
    $("section").append(el("option", {value: letter}, `${letter} · ${title}`));
  for (const kind of [...new Set(data.checks.map(check => check.kind))]) $("kind").append(el("option", {value: kind}, kind));
}

function move(dx, dy) {
  const cells = [...document.querySelectorAll(".cell")], from = document.activeElement.getBoundingClientRect();
  let best = null, least = Infinity;
  for (const each of cells) {
    const to = each.getBoundingClientRect(), x = (to.x - from.x) * dx, y = (to.y - from.y) * dy;
    if (dx ? x <= 0 || Math.abs(to.y - from.y) > 4 : y <= 0) continue;
    const distance = Math.abs(to.x - from.x) * (dx ? 1 : 8) + Math.abs(to.y - from.y);
    if (distance < least) [best, least] = [each, distance];
  }
  if (best) best.focus();
}

unpack().then(found => {
  data = found;
  for (const result of data.report.results) {
    if (!byCheck.has(result.check)) byCheck.set(result.check, []);
    byCheck.get(result.check).push(result);
  }
  facts();
  draw();
  const measure = () => document.documentElement.style.setProperty("--head", document.querySelector("header").offsetHeight + "px");
  measure();
  addEventListener("resize", measure);
  for (const id of ["search", "section", "kind"]) $(id).addEventListener("input", draw);
  addEventListener("keydown", event => {
    if (event.key === "Escape") hide();
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (step && document.activeElement.classList.contains("cell")) { event.preventDefault(); move(...step); }
  });
  const name = decodeURIComponent(location.hash.slice(1));
  const button = document.querySelector(`[data-cell="${CSS.escape(name)}"],[data-cell="${CSS.escape(name + "@-1")}"]`);
  if (name && button) { button.click(); button.scrollIntoView({block: "center"}); }
}).catch(error => { $("matrix").textContent = "The report's data cannot be unpacked: " + error; });
"""
