// The table of ranks: the culprits first, then whoever computes longest; sortable, with a filter.

const FIRST_SHOWN = 64;

const COLUMNS = [
  { key: "rank", title: "rank", show: String },
  { key: "node", title: "node", text: true },
  { key: "gpu", title: "GPU", text: true },
  { key: "uuid", title: "UUID", text: true },
  { key: "nics", title: "NICs", text: true },
  { key: "pod", title: "pod", text: true },
  { key: "ratio", title: "compute / peers", show: (ratio) => (ratio === null ? "-" : `${ratio.toFixed(2)}x`) },
  { key: "compute", title: "compute", show: showDuration },
  { key: "data", title: "input", show: showDuration },
  { key: "sync", title: "waiting", show: showDuration },
  { key: "step", title: "step", show: showDuration },
];

class RankTable {
  constructor(job, host, field, status, goToRow) {
    this.ranks = job.ranks;
    this.culprits = new Map(job.culprits.map((rank, place) => [rank, place]));
    this.columns = COLUMNS.filter((column) => this.ranks[column.key].some((value) => value !== "" && value !== null));
    this.entries = this.ranks.rank.map((_, entry) => entry);
    this.sorted = { key: null, falling: true };
    this.all = false;
    this.goToRow = goToRow;
    this.host = host;
    this.field = field;
    this.status = status;
    this.more = make("button", "", { type: "button" });
    this.more.addEventListener("click", () => {
      this.all = true;
      this.draw();
    });
    field.addEventListener("input", () => this.draw());
    this.draw();
  }

  matching() {
    const wanted = this.field.value.trim().toLowerCase();
    if (!wanted) return this.entries;
    if (/^\d+$/.test(wanted)) return this.entries.filter((entry) => this.ranks.rank[entry] === Number(wanted));
    const texts = COLUMNS.filter((column) => column.text).map((column) => this.ranks[column.key]);
    return this.entries.filter((entry) => texts.some((column) => column[entry].toLowerCase().includes(wanted)));
  }

  // Orders two entries; what is not known comes last, whichever way.
  compare(one, other) {
    if (this.sorted.key === null) return this.byBlame(one, other);
    const column = this.ranks[this.sorted.key];
    const [left, right] = [column[one], column[other]];
    if (left === null || right === null) return (left === null) - (right === null);
    const order = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right;
    return this.sorted.falling ? -order : order;
  }

  byBlame(one, other) {
    const place = (entry) => this.culprits.get(this.ranks.rank[entry]) ?? Infinity;
    if (place(one) !== place(other)) return place(one) - place(other);
    const busy = (entry) => (this.ranks.compute[entry] ?? 0) + (this.ranks.data[entry] ?? 0);
    return busy(other) - busy(one) || one - other;
  }

  draw() {
    const found = this.matching().slice().sort((one, other) => this.compare(one, other));
    const shown = this.all ? found : found.slice(0, FIRST_SHOWN);
    const table = make("table");
    const body = make("tbody");
    body.append(...shown.map((entry) => this.line(entry)));
    table.append(this.head(), body);
    this.status.textContent = `${shown.length} of ${this.entries.length} ranks shown`;
    this.more.textContent = `Show all ${found.length}`;
    this.host.replaceChildren(table, ...(found.length > shown.length ? [this.more] : []));
  }

  head() {
    const row = make("tr");
    for (const column of this.columns) {
      const sorted = this.sorted.key === column.key;
      const state = sorted ? (this.sorted.falling ? "descending" : "ascending") : "none";
      const cell = make("th", "", { scope: "col", "aria-sort": state, class: column.text ? "" : "number" });
      const button = make("button", column.title + (sorted ? (this.sorted.falling ? " ↓" : " ↑") : ""), { type: "button" });
      button.addEventListener("click", () => this.sort(column));
      cell.append(button);
      row.append(cell);
    }
    const head = make("thead");
    head.append(row);
    return head;
  }

  sort(column) {
    const again = this.sorted.key === column.key;
    const first = !column.text && column.key !== "rank";
    this.sorted = { key: column.key, falling: again ? !this.sorted.falling : first };
    this.draw();
    const place = this.columns.indexOf(column);
    this.host.querySelectorAll("thead button")[place].focus();
  }

  line(entry) {
    const row = make("tr", "", this.culprits.has(this.ranks.rank[entry]) ? { class: "lit" } : {});
    for (const column of this.columns) {
      const value = this.ranks[column.key][entry];
      if (column.key === "rank") row.append(this.rankCell(entry, value));
      else row.append(make("td", column.text ? value || "-" : column.show(value), { class: column.text ? "" : "number" }));
    }
    return row;
  }

  rankCell(entry, rank) {
    const cell = make("th", "", { scope: "row", class: "number" });
    if (!this.goToRow || this.ranks.row[entry] < 0) {
      cell.textContent = String(rank);
      return cell;
    }
    const button = make("button", String(rank), { type: "button", title: "show on the maps", "aria-label": `show rank ${rank} on the maps` });
    button.addEventListener("click", () => this.goToRow(this.ranks.row[entry]));
    cell.append(button);
    return cell;
  }
}
