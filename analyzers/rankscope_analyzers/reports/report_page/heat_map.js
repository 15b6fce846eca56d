// One job's maps of rank by time, with a cursor that the keyboard and the mouse share.

const MOST_HEIGHT = 300;
const MOST_ROW = 20;
const LEAST_ROW = 3; // thinner rows than this cannot be seen: several ranks share one
const FIRST_ZOOM = 64;
const LABEL_ROW = 12;

class HeatMaps {
  constructor(job, host, keys, buttons) {
    this.job = job;
    this.time = job.time;
    this.maps = job.time.maps.map((map) => ({ ...map, cells: decode(map.cells) }));
    this.rows = this.maps[0].cells.length / this.time.bins;
    this.rankOfRow = new Array(this.rows).fill(0);
    this.entryOfRow = new Array(this.rows).fill(0);
    job.ranks.row.forEach((row, entry) => {
      if (row < 0) return;
      this.entryOfRow[row] = entry;
      this.rankOfRow[row] = job.ranks.rank[entry];
    });
    const entryOfRank = new Map(job.ranks.rank.map((rank, entry) => [rank, entry]));
    this.culpritRows = job.culprits.map((rank) => job.ranks.row[entryOfRank.get(rank)]).filter((row) => row >= 0);
    const others = job.time.incidents.slice(1).flatMap((incident) => incident.ranks);
    const otherRows = others.map((rank) => job.ranks.row[entryOfRank.get(rank)]);
    this.otherRows = [...new Set(otherRows)].filter((row) => row >= 0 && !this.culpritRows.includes(row));
    this.window = { first: 0, count: this.rows };
    this.cursor = null;
    this.build(host, keys);
    this.listen(buttons);
    this.draw();
  }

  build(host, keys) {
    this.readout = make("p", "Move over a map, or focus it and use the arrow keys.", { class: "readout", role: "status", "aria-live": "polite" });
    this.host = make("div", "", { tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-label": `ranks over time, ${this.rows} ranks by ${this.time.bins} bins of steps`, "aria-describedby": keys });
    this.timeline = make("canvas", "", { role: "img", "aria-label": "step time over time, with incidents marked" });
    this.host.append(this.timeline);
    for (const map of this.maps) {
      const title = make("h4", MAP_TITLES[map.name]);
      map.legend = make("canvas", "", { "aria-hidden": "true" });
      map.swatch = make("span", "", { class: "swatch" });
      map.pooled = make("span", "", { class: "legend" });
      const legend = make("span", "", { class: "legend" });
      const low = map.scale === "ratio" ? "1x or less" : "0 %";
      const high = map.scale === "ratio" ? `${map.top.toFixed(2)}x or more` : `${(100 * map.top).toFixed(0)} % or more`;
      legend.append(low, map.legend, high, map.swatch, "not measured");
      title.append(legend, map.pooled);
      map.canvas = make("canvas", "", { role: "img", "aria-label": MAP_TITLES[map.name] });
      this.host.append(title, map.canvas);
    }
    this.axisCanvas = make("canvas", "", { "aria-hidden": "true" });
    this.host.append(this.axisCanvas);
    host.append(this.host, this.readout);
  }

  listen(buttons) {
    this.host.addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act(this);
    });
    for (const map of this.maps) {
      map.canvas.addEventListener("mousemove", (event) => {
        const box = map.canvas.getBoundingClientRect();
        this.moveTo(this.standsFor(this.groupAt(event.clientY - box.top), map), this.axis.binAt(event.clientX - box.left));
      });
    }
    for (const button of buttons) {
      button.addEventListener("click", () => ACTIONS[button.dataset.do](this));
      button.hidden = (button.dataset.do === "culprit" && !this.culpritRows.length) || this.rows <= FIRST_ZOOM;
    }
  }

  // Rows of pixels on the screen: one rank each, or groups of ranks that share one.
  get groups() {
    return Math.min(this.window.count, Math.floor(MOST_HEIGHT / LEAST_ROW));
  }

  get rowHeight() {
    return Math.min(MOST_ROW, MOST_HEIGHT / this.groups);
  }

  get pooling() {
    return this.groups < this.window.count;
  }

  groupStart(group) {
    return this.window.first + Math.floor((group * this.window.count) / this.groups);
  }

  groupOf(row) {
    let group = Math.floor(((row - this.window.first) * this.groups) / this.window.count);
    while (group + 1 < this.groups && this.groupStart(group + 1) <= row) group += 1;
    return Math.min(Math.max(group, 0), this.groups - 1);
  }

  groupAt(y) {
    return Math.min(this.groups - 1, Math.max(0, Math.floor(y / this.rowHeight)));
  }

  code(map, row, bin) {
    return map.cells[row * this.time.bins + bin];
  }

  // Returns the row of a group that is drawn in a bin: its slowest, or the one that waits least.
  extreme(map, group, bin) {
    let chosen = this.groupStart(group);
    for (let row = chosen + 1; row < this.groupStart(group + 1); row += 1) {
      const [code, best] = [this.code(map, row, bin), this.code(map, chosen, bin)];
      if (code !== 0 && (best === 0 || (map.pool === "max" ? code > best : code < best))) chosen = row;
    }
    return chosen;
  }

  standsFor(group, map) {
    if (!this.pooling) return this.groupStart(group);
    const known = [...this.culpritRows, ...this.otherRows].find((row) => this.inWindow(row) && this.groupOf(row) === group);
    return known === undefined ? this.extreme(map, group, this.cursor ? this.cursor.bin : 0) : known;
  }

  inWindow(row) {
    return row >= this.window.first && row < this.window.first + this.window.count;
  }

  // Moves the cursor, scrolling a zoomed map when it leaves the window.
  moveTo(row, bin) {
    const kept = Math.min(this.rows - 1, Math.max(0, row));
    this.cursor = { row: kept, bin: Math.min(this.time.bins - 1, Math.max(0, bin)) };
    const first = Math.min(Math.max(this.window.first, kept - this.window.count + 1), kept);
    const scrolled = first !== this.window.first;
    this.window.first = first;
    if (scrolled) this.draw();
    else this.drawCursors();
    this.say();
  }

  // Moves by rows on the screen: a group of ranks is one row.
  moveRows(by) {
    const at = this.cursor || { row: this.culpritRows[0] ?? this.window.first, bin: 0 };
    if (!this.cursor) this.moveTo(at.row, at.bin);
    else if (!this.pooling) this.moveTo(at.row + by, at.bin);
    else {
      const group = Math.min(this.groups - 1, Math.max(0, this.groupOf(at.row) + by));
      this.moveTo(this.standsFor(group, this.maps[0]), at.bin);
    }
  }

  moveBins(by) {
    if (!this.cursor) this.moveRows(0);
    else this.moveTo(this.cursor.row, this.cursor.bin + by);
  }

  // Moves to the first rank of the node before or after.
  moveNodes(by) {
    if (!this.cursor) this.moveRows(0);
    const node = (row) => this.job.ranks.node[this.entryOfRow[row]];
    let row = this.cursor.row;
    while (row + by >= 0 && row + by < this.rows && node(row) === node(this.cursor.row)) row += by;
    while (by < 0 && row > 0 && node(row - 1) === node(row)) row -= 1;
    this.moveTo(row, this.cursor.bin);
  }

  zoom(count, row) {
    const kept = Math.min(this.rows, Math.max(Math.min(8, this.rows), Math.round(count)));
    const middle = row ?? (this.cursor ? this.cursor.row : this.culpritRows[0] ?? 0);
    const first = Math.min(this.rows - kept, Math.max(0, Math.round(middle - kept / 2)));
    this.window = { first, count: kept };
    this.draw();
    if (this.cursor && this.inWindow(this.cursor.row)) this.say();
  }

  goToRow(row) {
    if (this.rows > FIRST_ZOOM) this.zoom(FIRST_ZOOM, row);
    const incident = this.time.incidents[0];
    this.moveTo(row, this.cursor ? this.cursor.bin : incident ? incident.first : 0);
    this.host.focus();
  }

  draw() {
    this.axis = new TimeAxis(this.time, this.timeline.clientWidth || 1000);
    const theme = currentTheme();
    for (const map of this.maps) {
      map.image = this.image(map, palette(map, theme));
      map.swatch.style.background = rgb(RAMPS[theme].missing);
      this.drawLegend(map, theme);
      map.pooled.textContent = this.pooling ? `A row is about ${Math.round(this.window.count / this.groups)} ranks: the one that ${map.pool === "max" ? "takes longest" : "waits least"} is drawn.` : "";
    }
    this.axis.drawAxis(this.axisCanvas);
    this.drawCursors();
  }

  drawLegend(map, theme) {
    map.legend.width = 140;
    map.legend.height = 12;
    const pen = map.legend.getContext("2d");
    for (let x = 0; x < 140; x += 1) {
      pen.fillStyle = rgb(onRamp(RAMPS[theme][map.name], x / 139));
      pen.fillRect(x, 0, 1, 12);
    }
  }

  // Returns the window of a map with one pixel a bin and row.
  image(map, colours) {
    const made = document.createElement("canvas");
    made.width = this.time.bins;
    made.height = this.groups;
    const pen = made.getContext("2d");
    const pixels = pen.createImageData(this.time.bins, this.groups);
    for (let group = 0; group < this.groups; group += 1) {
      for (let bin = 0; bin < this.time.bins; bin += 1) {
        const row = this.pooling ? this.extreme(map, group, bin) : this.groupStart(group);
        const at = 4 * (group * this.time.bins + bin);
        pixels.data.set(colours[this.code(map, row, bin)], at);
        pixels.data[at + 3] = 255;
      }
    }
    pen.putImageData(pixels, 0, 0);
    return made;
  }

  drawCursors() {
    this.axis.drawTimeline(this.timeline, this.cursor ? this.cursor.bin : null);
    for (const map of this.maps) this.drawMap(map);
  }

  drawMap(map) {
    const height = this.rowHeight * this.groups;
    const pen = prepare(map.canvas, this.axis.width, height + 1);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(map.image, LEFT, 0, this.axis.plot, height);
    this.axis.drawRestarts(pen, 0, height);
    this.drawLabels(pen, height);
    this.drawMarks(pen);
    if (!this.cursor || !this.inWindow(this.cursor.row)) return;
    const top = this.groupOf(this.cursor.row) * this.rowHeight;
    const [from, to] = [this.axis.x(this.cursor.bin), this.axis.x(this.cursor.bin + 1)];
    // Two rings, one of them light: whatever the colour below, one of them shows.
    for (const [width, colour] of [[5, "--card"], [2, "--focus"]]) {
      pen.lineWidth = width;
      pen.strokeStyle = pageColour(colour);
      pen.strokeRect(from - 2, top - 2, Math.max(to - from, 3) + 4, this.rowHeight + 4);
    }
    pen.lineWidth = 1;
  }

  drawLabels(pen, height) {
    pen.fillStyle = pageColour("--soft");
    pen.textAlign = "right";
    const every = Math.max(1, Math.ceil((LABEL_ROW * 1.25) / this.rowHeight));
    const wide = every > 1 ? Math.ceil(36 / this.rowHeight) : 1;
    for (let group = 0; group < this.groups; group += wide) {
      const y = Math.min(Math.max((group + 0.5) * this.rowHeight, 6), height - 6);
      pen.fillText(`rank ${this.rankOfRow[this.groupStart(group)]}`, LEFT - 8, y);
    }
  }

  // Marks the culprits beside the map, so that a thin row cannot be overlooked; those of further
  // incidents in a paler colour.
  drawMarks(pen) {
    const right = LEFT + this.axis.plot;
    let free = 0;
    const marked = [...this.culpritRows, ...this.otherRows];
    const shown = marked.filter((row) => this.inWindow(row)).sort((one, other) => one - other);
    pen.textAlign = "left";
    for (const row of shown) {
      pen.fillStyle = pageColour(this.culpritRows.includes(row) ? "--accent" : "--soft");
      const y = (this.groupOf(row) + 0.5) * this.rowHeight;
      pen.beginPath();
      pen.moveTo(right + 3, y);
      pen.lineTo(right + 11, y - 5);
      pen.lineTo(right + 11, y + 5);
      pen.fill();
      if (y - 6 < free) continue;
      pen.fillText(`rank ${this.rankOfRow[row]}`, right + 15, Math.max(y, 6));
      free = y + 7;
    }
  }

  say() {
    const { row, bin } = this.cursor;
    const ranks = this.job.ranks;
    const entry = this.entryOfRow[row];
    const gpu = ranks.gpu[entry] ? `, GPU ${ranks.gpu[entry]}` : "";
    const values = this.maps.map((map) => MAP_WORDS[map.name].join(showValue(map, this.code(map, row, bin))));
    const culprit = this.culpritRows.includes(row) ? " (culprit)" : "";
    this.readout.textContent = `rank ${this.rankOfRow[row]}${culprit}, node ${ranks.node[entry]}${gpu}; ${this.axis.steps(bin)}, ${showClock(this.time.start[bin])}: ${values.join("; ")}; median step ${showDuration(this.time.median[bin])}.`;
  }
}
