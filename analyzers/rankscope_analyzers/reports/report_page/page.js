// Brings the page to life: the jobs' drawings and tables, the choice of colours, printing.

const THEMES = ["", "light", "dark"];
const THEME_WORDS = { "": "as the system", light: "light", dark: "dark" };

const views = JSON.parse(document.getElementById("data").textContent).map((job, number) => {
  const article = document.getElementById(`job-${number}`);
  const host = document.getElementById(`job-${number}-maps`);
  const buttons = article.querySelectorAll("button[data-do]");
  const maps = host && job.time ? new HeatMaps(job, host, `job-${number}-keys`, buttons) : null;
  const ranks = document.getElementById(`job-${number}-ranks`);
  const table = ranks && new RankTable(job, ranks, document.getElementById(`job-${number}-filter`), article.querySelector(".ranks .count"), maps && ((row) => maps.goToRow(row)));
  return { maps, table };
});

function redraw() {
  for (const view of views) if (view.maps) view.maps.draw();
}

document.getElementById("theme").addEventListener("click", (event) => {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme || "") + 1) % THEMES.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  event.target.textContent = `Colours: ${THEME_WORDS[next]}`;
  redraw();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.matchMedia("print").addEventListener("change", redraw);
window.addEventListener("resize", redraw);
window.addEventListener("beforeprint", () => {
  for (const book of document.querySelectorAll("details")) book.open = true;
});
window.addEventListener("hashchange", () => {
  const target = document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
});

// For whoever wants to look at the numbers behind the pixels from the console.
window.rankscope = { views };
