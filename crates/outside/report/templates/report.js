// Comfort only: without it everything can be read.
"use strict";
// A link to a finding that is folded away unfolds it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  const box = document.getElementById("all");
  if (target && box && target.classList.contains("minor")) {
    box.checked = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", unfold);
unfold();
// The overview sorts by the column that is clicked.
for (const button of document.querySelectorAll(".overview th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = head.closest("table").tBodies[0];
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      const by = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y);
      return down ? -by : by;
    };
    body.append(...[...body.rows].sort(order));
  });
}
// Tells tests that all of the above ran.
document.documentElement.dataset.script = "ready";
