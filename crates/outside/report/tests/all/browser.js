// Opens each of `pages` in frames of several widths and uses it. If `extra` has axe-core, it checks how
// accessible the pages are; else it checks that they fit and that their controls work. Writes the number
// of checks, then what was wrong, a line each.
"use strict";
let checks = 0;
const wrong = [];
const check = (holds, what) => {
  checks += 1;
  if (!holds) wrong.push(what);
};
const open = (name, width, hash = "") =>
  new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.width = width;
    frame.height = 900;
    frame.onload = () => resolve([frame.contentDocument, frame.contentWindow, frame]);
    frame.src = `${name}.html${hash}`;
    document.body.append(frame);
  });
const all = (page, selector) => [...page.querySelectorAll(selector)];
const shown = (element) => element.getClientRects().length > 0;
const soon = () => new Promise((resolve) => setTimeout(resolve, 100));
const input = (element, value) => {
  element.value = value;
  element.dispatchEvent(new Event("input", { bubbles: true }));
};

async function fits(name, width) {
  const [page, window, frame] = await open(name, width);
  const over = page.documentElement.scrollWidth - window.innerWidth;
  check(over <= 0, `${name} at ${width}: ${over} pixels too wide`);
  for (const box of all(page, ".scroll").filter(shown)) {
    const scrolls = box.scrollWidth > box.clientWidth;
    check((box.tabIndex === 0) === scrolls, `${name} at ${width}: focus of a scrolled box`);
    check(width > 360 || !scrolls, `${name} at ${width}: ${box.getAttribute("aria-label")} scrolls sideways`);
  }
  // What one sees of the drawings differs, and there is always one.
  for (const map of all(page, ".map").filter(shown)) {
    const [whole, parts] = [map.querySelector(".whole"), map.querySelector(".parts")];
    check(shown(whole) !== shown(parts), `${name} at ${width}: a line is drawn once`);
    check(shown(parts) === (width <= 600), `${name} at ${width}: the drawing that fits`);
  }
  frame.remove();
}

async function filters() {
  const [page, , frame] = await open("report", 1440);
  const rows = () => all(page, ".overview tbody tr").filter(shown);
  const cards = () => all(page, "#findings > section").filter(shown);
  const before = rows().length;
  check(before === cards().length && before > 3, `as many rows as findings: ${before}`);
  input(page.getElementById("search"), "QUEUE_pop");
  check(rows().length === 1 && cards().length === 1, "the search finds the one function");
  check(cards()[0].textContent.includes("queue_pop"), "and shows its finding");
  check(page.getElementById("matches").textContent.startsWith("1 of "), "it says how many");
  input(page.getElementById("search"), "no such word");
  check(rows().length === 0 && cards().length === 0, "a search may find nothing");
  all(page, "button[type=reset]")[0].click();
  check(rows().length === before, "clearing shows all again");
  const lists = all(page, "select[data-facet]");
  check(lists.map((l) => l.dataset.facet).join() === "kind,function,thread,verdict", "four lists");
  for (const list of lists) {
    for (const choice of [...list.options].slice(1)) {
      input(list, choice.value);
      const promised = Number(choice.textContent.match(/\((\d+)\)$/)[1]);
      check(rows().length === promised, `${choice.textContent}: ${rows().length} rows`);
      check(cards().length === promised, `${choice.textContent}: ${cards().length} findings`);
    }
    input(list, "");
  }
  const verdict = lists[3];
  input(verdict, [...verdict.options].find((o) => o.textContent.startsWith("true sharing")).value);
  check(rows().length === 1, "a choice shows findings that are hidden otherwise");
  frame.remove();
}

async function sorts() {
  const [page, , frame] = await open("report", 1440);
  const column = (n) => all(page, `.overview tbody tr td:nth-child(${n})`).map((c) => c.textContent);
  const heads = all(page, ".overview th");
  const order = () => heads.map((h) => h.getAttribute("aria-sort")).join();
  check(order() === "ascending,,,,,,", "at first by rank");
  heads[4].querySelector("button").click();
  check(order() === ",,,,descending,,", "threads fall");
  const threads = column(5).map(Number);
  check(threads.join() === [...threads].sort((a, b) => b - a).join(), `threads: ${threads}`);
  const ranks = all(page, "#findings > section").map((c) => c.id.slice(8));
  check(ranks.join() === column(1).join(), "findings follow their rows");
  heads[1].querySelector("button").click();
  check(order() === ",ascending,,,,,", "names rise");
  heads[1].querySelector("button").click();
  check(order() === ",descending,,,,,", "and fall");
  const sign = getComputedStyle(heads[1].querySelector("button"), "::after").content;
  check(sign.includes("\u25bc"), `the order is drawn: ${sign}`);
  frame.remove();
}

async function links() {
  // A finding that is folded away, by its rank and by its fingerprint.
  const [first, , one] = await open("report", 768);
  const minor = all(first, "section.minor")[0];
  check(!shown(minor), "a minor finding is folded away");
  const names = [minor.id, minor.dataset.fingerprint];
  one.remove();
  for (const name of names) {
    const [page, window, frame] = await open("report", 768, `#${name}`);
    const card = all(page, "section.minor")[0];
    check(shown(card) && card.querySelector("details").open, `#${name} shows it`);
    check(card.contains(page.activeElement), `#${name} moves the focus there`);
    const box = card.getBoundingClientRect();
    check(box.top < window.innerHeight && box.bottom > 0, `#${name} scrolls there`);
    frame.remove();
  }
  // One of sixty, which is folded up and filtered out.
  const [page, window, frame] = await open("sixty", 768);
  const last = page.getElementById("finding-59");
  check(!last.querySelector("details").open, "the last of sixty are folded up");
  check(page.getElementById("finding-1").querySelector("details").open, "the first are not");
  input(page.getElementById("search"), "no such word");
  window.location.hash = "#finding-59";
  await soon();
  check(shown(last) && last.querySelector("details").open, "a link shows it all the same");
  page.getElementById("fold").click();
  check(all(page, "#findings > section > details[open]").length === 0, "all can be folded");
  page.getElementById("unfold").click();
  check(all(page, "#findings > section > details:not([open])").length === 0, "and unfolded");
  frame.remove();
}

async function copies() {
  const [page, window, frame] = await open("report", 1440);
  let copied = "";
  Object.defineProperty(window.navigator, "clipboard", {
    value: { writeText: async (text) => { copied = text; } },
  });
  const button = all(page, "button.copy")[0];
  check(shown(button), "there is a button for the advice");
  button.click();
  await soon();
  check(copied.startsWith("**false sharing: `lreg_args"), `copied: ${copied.slice(0, 60)}`);
  check(copied.includes("`aligned_alloc(64, 256)`"), "with the change");
  check(button.textContent === "Copied", "the button says so");
  check(page.getElementById("said").textContent === "Copied", "for screen readers, too");
  frame.remove();
}

async function edits() {
  const [page, , frame] = await open("report", 1440);
  const [editor, custom] = [page.getElementById("editor"), page.getElementById("custom")];
  const links = () => all(page, "a[data-file][href]").map((a) => a.getAttribute("href"));
  input(editor, "");
  check(links().length === 0, "no link before an editor is chosen");
  input(editor, editor.options[1].value);
  const vscode = links();
  check(vscode[0] === "vscode://file/home/user/phoenix/linear_regression.c:133", `VS Code: ${vscode[0]}`);
  input(editor, editor.options[2].value);
  check(links()[0] === "idea://open?file=/home/user/phoenix/linear_regression.c&line=133", `IDEA: ${links()[0]}`);
  check(!shown(custom), "no field for another editor");
  input(editor, "custom");
  check(shown(custom), "a field for another editor");
  input(custom, "emacs://open?url=file://{file}&line={line}");
  check(links()[0] === "emacs://open?url=file:///home/user/phoenix/linear_regression.c&line=133", `another: ${links()[0]}`);
  input(custom, "javascript:alert('{file}')");
  check(links().length === 0, "a script is no editor");
  frame.remove();
}

async function zooms() {
  const [page, , frame] = await open("report", 1440);
  const chart = all(page, ".timeline")[0];
  const view = () => chart.querySelector(".plot").getAttribute("viewBox");
  const ends = () => [".from", ".to"].map((s) => chart.querySelector(s).textContent).join(" to ");
  const press = (what) => chart.querySelector(`[data-zoom=${what}]`).click();
  const whole = view();
  press("in");
  // The run takes 3.21 s; its middle half is from 0.8025 s to 2.4075 s.
  check(ends() === "0.803 s to 2.41 s", `zoomed in: ${ends()}`);
  press("later");
  check(ends() === "1.61 s to 3.21 s", `later: ${ends()}`);
  press("later");
  check(ends() === "1.61 s to 3.21 s", "not beyond the end");
  press("earlier");
  check(ends() === "0.803 s to 2.41 s", `earlier: ${ends()}`);
  press("all");
  check(view() === whole && ends() === "0 to 3.21 s", `the whole run: ${ends()}`);
  frame.remove();
}

async function prints() {
  const [page, window, frame] = await open("sixty", 768);
  const folded = () => all(page, "details:not([open])").length;
  const before = folded();
  window.dispatchEvent(new Event("beforeprint"));
  check(before > 0 && folded() === 0, "on paper everything is unfolded");
  window.dispatchEvent(new Event("afterprint"));
  check(folded() === before, "and afterwards as before");
  frame.remove();
}

async function accessible(name, width) {
  const [page, window, frame] = await open(name, width);
  const script = page.createElement("script");
  script.textContent = extra;
  page.body.append(script);
  const report = await window.axe.run(page.documentElement);
  script.remove();
  check(report.passes.length > 10, `${name}: axe-core found ${report.passes.length} things to check`);
  for (const one of report.violations) {
    check(false, `${name} at ${width}: ${one.id}: ${one.help}: ${one.nodes[0].html}`.replaceAll("\n", " "));
  }
  frame.remove();
}

async function main() {
  for (const width of [360, 768, 1440]) {
    for (const name of pages) await (extra ? accessible(name, width) : fits(name, width));
  }
  if (!extra) {
    for (const part of [filters, sorts, links, copies, edits, zooms, prints]) await part();
  }
}
main()
  .catch((error) => wrong.push(`${error} ${error.stack}`))
  .finally(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    document.body.append(`scheme ${scheme}`);
    const out = document.createElement("pre");
    out.id = "wrong";
    out.textContent = `${checks}\n${wrong.join("\n")}`;
    document.body.append(out);
  });
