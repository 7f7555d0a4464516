// Comfort only: without it everything can be read.
"use strict";
const all = (selector, of = document) => [...of.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);
const say = (text) => { byId("said").textContent = text; };
const rows = all(".overview tbody tr");
const cards = all("#findings > section");
const pairs = rows.map((row, at) => ({ row, card: cards[at] }));
const unfold = (card, open) => { card.querySelector("details").open = open; };

// The filter hides rows of the overview and findings that lack a word or a choice. While it asks for
// something, findings below the threshold take part, too.
const tools = byId("tools"), search = byId("search"), lists = all("select[data-facet]");
function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const keys = lists.map((list) => list.value).filter(Boolean);
  let shown = 0;
  for (const { row, card } of pairs) {
    const having = row.dataset.facets.split(" ");
    const text = words.length ? card.textContent.toLowerCase() : "";
    const fits = keys.every((key) => having.includes(key)) && words.every((word) => text.includes(word));
    row.hidden = card.hidden = !fits;
    shown += fits;
  }
  const asks = words.length + keys.length > 0;
  document.body.classList.toggle("filtering", asks);
  byId("matches").textContent = asks ? `${shown} of ${rows.length} findings` : "";
}
if (tools) tools.hidden = false;
tools?.addEventListener("submit", (event) => event.preventDefault());
if (search) {
  search.addEventListener("input", filter);
  for (const list of lists) list.addEventListener("input", filter);
  tools.addEventListener("reset", (event) => {
    event.preventDefault(); // the choice of an editor stays
    search.value = "";
    for (const list of lists) list.value = "";
    filter();
    search.focus();
  });
  byId("unfold").addEventListener("click", () => cards.forEach((card) => unfold(card, true)));
  byId("fold").addEventListener("click", () => cards.forEach((card) => unfold(card, false)));
}

// A link to a finding shows it, whatever hides it. It names the finding's rank, or its
// fingerprint, which is the same in later reports.
function visit() {
  const name = location.hash.slice(1);
  const card = cards.find((card) => card.id === name || card.dataset.fingerprint === name);
  if (!card) return;
  if (card.hidden) tools.reset();
  const box = byId("all");
  if (box && card.classList.contains("minor")) box.checked = true;
  unfold(card, true);
  card.scrollIntoView();
  card.querySelector("summary").focus({ preventScroll: true });
}
addEventListener("hashchange", visit);
// The browser itself moves to the place that a link names once the page is loaded.
addEventListener("load", visit);

// The overview and the findings below it are sorted by the column that is clicked: figures fall
// at first, names and ranks rise.
for (const button of all(".overview th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), column = head.cellIndex;
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
    const figures = rows.every((row) => key(row) !== "" && !isNaN(key(row)));
    const first = figures && column > 0 ? "descending" : "ascending";
    const other = { ascending: "descending", descending: "ascending" };
    const order = other[head.getAttribute("aria-sort")] ?? first;
    for (const cell of head.parentNode.cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const compare = (a, b) => (figures ? a - b : a.localeCompare(b));
    const sorted = [...pairs].sort((a, b) => (order === "descending" ? -1 : 1) * compare(key(a.row), key(b.row)));
    rows[0]?.parentNode.append(...sorted.map((pair) => pair.row));
    byId("findings").append(...sorted.map((pair) => pair.card));
    say(`Sorted by ${button.textContent}, ${order}`);
  });
}

// Advice to the clipboard, by the old way where a browser keeps the new one from files.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser refuses");
  }
}
for (const button of all("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const done = await copy(button.dataset.copy).then(() => "Copied", () => "Not copied: the browser refuses");
    button.textContent = done;
    say(done);
    button.focus();
    setTimeout(() => { button.textContent = "Copy advice"; }, 2000);
  });
}

// Links to an editor. The choice is kept where the browser lets a file keep something.
const editor = byId("editor"), custom = byId("custom");
const kept = {
  get(name) { try { return localStorage.getItem(`sunder-${name}`) ?? ""; } catch { return ""; } },
  set(name, value) { try { localStorage.setItem(`sunder-${name}`, value); } catch { /* not kept */ } },
};
function link() {
  custom.closest("label").hidden = editor.value !== "custom";
  const template = editor.value === "custom" ? custom.value.trim() : editor.value;
  // An address that runs as a script is no editor.
  const good = /^[a-z][a-z0-9+.-]*:/i.test(template) && !/^(javascript|data|vbscript|blob):/i.test(template);
  for (const place of all("a[data-file]")) {
    const { file, line } = place.dataset;
    if (!good || !file.startsWith("/")) {
      place.removeAttribute("href");
      continue;
    }
    const path = file.split("/").map(encodeURIComponent).join("/");
    place.href = template.replaceAll("{file}", () => path).replaceAll("{line}", line);
  }
  kept.set("editor", editor.value);
  kept.set("custom", custom.value);
}
if (editor) {
  custom.value = kept.get("custom");
  editor.value = kept.get("editor");
  if (editor.selectedIndex < 0) editor.value = "";
  editor.addEventListener("input", link);
  custom.addEventListener("input", link);
  link();
}

// A timeline shows the part of the run from `from`, `share` of it long.
for (const chart of all(".timeline")) {
  const plot = chart.querySelector(".plot"), total = Number(chart.dataset.seconds);
  const [left, top, width, height] = plot.getAttribute("viewBox").split(" ").map(Number);
  let from = 0, share = 1;
  const show = (start, part) => {
    share = Math.min(1, Math.max(1 / 64, part));
    from = Math.min(1 - share, Math.max(0, start));
    plot.setAttribute("viewBox", `${left + from * width} ${top} ${share * width} ${height}`);
    const time = (at) => (at === 0 ? "0" : `${(at * total).toPrecision(3)} s`);
    chart.querySelector(".from").textContent = time(from);
    chart.querySelector(".to").textContent = time(from + share);
  };
  const steps = {
    in: () => show(from + share / 4, share / 2),
    out: () => show(from - share / 2, share * 2),
    earlier: () => show(from - share / 2, share),
    later: () => show(from + share / 2, share),
    all: () => show(0, 1),
  };
  chart.querySelector(".zoom").hidden = false;
  for (const button of all("button[data-zoom]", chart)) {
    button.addEventListener("click", () => {
      steps[button.dataset.zoom]();
      say(`${chart.querySelector(".from").textContent} to ${chart.querySelector(".to").textContent}`);
    });
  }
  // Dragging over the chart selects a part.
  const at = (event) => {
    const box = plot.getBoundingClientRect();
    return from + share * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  let start = null;
  plot.addEventListener("pointerdown", (event) => { start = at(event); });
  addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [low, high] = [start, at(event)].sort((a, b) => a - b);
    start = null;
    if (high - low > share / 50) show(low, high - low);
  });
}

// Only what can be scrolled takes the focus.
const reach = () => {
  for (const box of all(".scroll")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
addEventListener("resize", reach);
reach();

// On paper every finding is unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = all("details:not([open])");
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));

// Tells tests that all of the above ran.
document.documentElement.dataset.script = "ready";
