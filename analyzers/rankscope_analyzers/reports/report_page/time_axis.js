// What all drawings of a job share: where a bin of time lies, the step times, the incidents.

const LEFT = 92;
const RIGHT = 92;
const LANE = 18;
const STEP_HEIGHT = 70;
const AXIS_HEIGHT = 34;
const TICK_WIDTH = 170;

// Prepares a canvas for drawing in CSS pixels and returns its context.
function prepare(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
  pen.textBaseline = "middle";
  return pen;
}

function pageColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

class TimeAxis {
  constructor(time, width) {
    this.time = time;
    this.width = width;
    this.plot = Math.max(width - LEFT - RIGHT, 60);
  }

  x(bin) {
    return LEFT + (bin * this.plot) / this.time.bins;
  }

  binAt(x) {
    const bin = Math.floor(((x - LEFT) * this.time.bins) / this.plot);
    return Math.min(this.time.bins - 1, Math.max(0, bin));
  }

  steps(bin) {
    const [first, last] = [this.time.first[bin], this.time.last[bin]];
    return first === last ? `step ${first}` : `steps ${first} to ${last}`;
  }

  // Draws a lane per incident above the step times; returns the height of all.
  drawTimeline(canvas, cursorBin) {
    const lanes = this.time.incidents.length * LANE;
    const height = lanes + STEP_HEIGHT + 12;
    const pen = prepare(canvas, this.width, height);
    this.time.incidents.forEach((incident, number) => this.drawIncident(pen, incident, number * LANE));
    this.drawSteps(pen, lanes + 8);
    this.drawRestarts(pen, lanes, height);
    this.nameRestarts(pen, lanes + 14);
    this.drawCursor(pen, cursorBin, lanes, height);
    return height;
  }

  drawIncident(pen, incident, top) {
    const [from, to] = [this.x(incident.first), this.x(incident.last + 1)];
    pen.fillStyle = pageColour("--accent-ground");
    pen.fillRect(from, top + 1, to - from, LANE - 4);
    pen.strokeStyle = pageColour("--accent");
    pen.strokeRect(from + 0.5, top + 1.5, Math.max(to - from - 1, 1), LANE - 5);
    pen.fillStyle = pageColour("--text");
    const who = incident.ranks.length ? `, rank ${incident.ranks.slice(0, 3).join(" ")}` : "";
    const label = incident.kind.replaceAll("_", " ") + who;
    const space = to - from > pen.measureText(label).width + 10;
    pen.textAlign = space || from < this.width / 2 ? "left" : "right";
    const beside = from < this.width / 2 ? to + 6 : from - 6;
    pen.fillText(label, space ? from + 6 : beside, top + LANE / 2);
  }

  drawSteps(pen, top) {
    const most = Math.max(...this.time.longest.filter((value) => value !== null), 0);
    if (most <= 0) return;
    const y = (seconds) => top + STEP_HEIGHT * (1 - seconds / most);
    pen.fillStyle = pageColour("--soft");
    pen.textAlign = "right";
    pen.fillText(showDuration(most), LEFT - 6, top + 6);
    pen.fillText("step time", LEFT - 6, top + STEP_HEIGHT / 2);
    pen.fillText("0", LEFT - 6, top + STEP_HEIGHT - 4);
    pen.strokeStyle = pageColour("--line");
    pen.strokeRect(LEFT - 0.5, top - 0.5, this.plot + 1, STEP_HEIGHT + 1);
    pen.fillStyle = pageColour("--bar");
    this.time.longest.forEach((value, bin) => {
      if (value === null) return;
      const [from, to] = [Math.round(this.x(bin)), Math.round(this.x(bin + 1))];
      pen.fillRect(from, y(value), to - from, top + STEP_HEIGHT - y(value));
    });
    pen.strokeStyle = pageColour("--text");
    pen.lineWidth = 1.5;
    pen.beginPath();
    this.time.median.forEach((value, bin) => {
      if (value === null) return;
      pen.lineTo(this.x(bin), y(value));
      pen.lineTo(this.x(bin + 1), y(value));
    });
    pen.stroke();
    pen.lineWidth = 1;
  }

  // Draws dashes on a line of the page's own colour, so that they show on any map.
  drawRestarts(pen, top, bottom) {
    for (const bin of this.time.restarts) {
      for (const [dash, colour] of [[[], "--card"], [[4, 4], "--text"]]) {
        pen.strokeStyle = pageColour(colour);
        pen.setLineDash(dash);
        pen.beginPath();
        pen.moveTo(this.x(bin), top);
        pen.lineTo(this.x(bin), bottom);
        pen.stroke();
      }
    }
    pen.setLineDash([]);
  }

  nameRestarts(pen, top) {
    pen.fillStyle = pageColour("--text");
    pen.textAlign = "left";
    let free = 0;
    for (const bin of this.time.restarts) {
      if (this.x(bin) < free) continue;
      pen.fillText("restart", this.x(bin) + 4, top);
      free = this.x(bin) + TICK_WIDTH / 2;
    }
  }

  drawCursor(pen, bin, top, bottom) {
    if (bin === null) return;
    pen.strokeStyle = pageColour("--focus");
    pen.strokeRect(this.x(bin) - 0.5, top + 0.5, Math.max(this.x(bin + 1) - this.x(bin), 2) + 1, bottom - top - 1);
  }

  drawAxis(canvas) {
    const pen = prepare(canvas, this.width, AXIS_HEIGHT);
    const ticks = Math.max(1, Math.min(this.time.bins, Math.floor(this.plot / TICK_WIDTH)));
    pen.fillStyle = pageColour("--soft");
    pen.strokeStyle = pageColour("--soft");
    for (let tick = 0; tick < ticks; tick += 1) {
      const bin = Math.floor((tick * this.time.bins) / ticks);
      const x = this.x(bin);
      pen.beginPath();
      pen.moveTo(x + 0.5, 0);
      pen.lineTo(x + 0.5, 6);
      pen.stroke();
      pen.textAlign = "left";
      pen.fillText(showClock(this.time.start[bin]), x, 13);
      pen.fillText(`step ${this.time.first[bin]}`, x, 27);
    }
  }
}
