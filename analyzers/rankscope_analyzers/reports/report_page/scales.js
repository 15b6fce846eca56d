// Values, colours and words: what a cell's code stands for and how it is shown.

// Each ramp is one hue whose lightness falls (on dark pages: rises) all the way, so that it reads
// the same to colour-blind eyes and in grey. Compute is orange, waiting blue, input violet.
const RAMPS = {
  light: {
    compute: [[248, 244, 236], [253, 204, 128], [233, 124, 22], [150, 52, 4], [74, 18, 6]],
    sync: [[241, 245, 250], [160, 203, 228], [66, 146, 198], [8, 81, 156], [8, 36, 84]],
    data: [[245, 242, 249], [190, 188, 222], [130, 122, 188], [88, 42, 146], [48, 4, 88]],
    missing: [196, 200, 206],
  },
  dark: {
    compute: [[32, 35, 42], [96, 54, 22], [192, 98, 18], [250, 172, 66], [255, 240, 196]],
    sync: [[30, 36, 46], [22, 64, 114], [42, 122, 192], [112, 192, 236], [222, 246, 255]],
    data: [[34, 32, 46], [70, 50, 126], [124, 100, 194], [182, 168, 232], [242, 236, 255]],
    missing: [84, 89, 98],
  },
};
const LEVELS = 254;
const MAP_TITLES = {
  compute: "Compute, as a ratio to the peers of the same stage in the same step",
  sync: "Waiting in collectives, share of the step",
  data: "Waiting for input, share of the step",
};
const MAP_WORDS = {
  compute: ["computes ", " as long as its peers"],
  sync: ["waits in collectives ", " of the step"],
  data: ["waits for input ", " of the step"],
};

function decode(text) {
  const raw = atob(text);
  const cells = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) cells[at] = raw.charCodeAt(at);
  return cells;
}

// Returns what a code stands for, null where nothing was measured.
function valueOf(map, code) {
  if (code === 0) return null;
  const share = (code - 1) / LEVELS;
  if (map.scale === "ratio") return map.low * (map.high / map.low) ** share;
  return map.low + (map.high - map.low) * share;
}

// Returns how far up its ramp a value is, 0 to 1: a ratio of 1 and less is the palest.
function strength(map, value) {
  const place = map.scale === "ratio" ? Math.log(value) / Math.log(map.top) : value / map.top;
  return Math.min(1, Math.max(0, place));
}

function onRamp(ramp, place) {
  const scaled = place * (ramp.length - 1);
  const from = Math.min(Math.floor(scaled), ramp.length - 2);
  return ramp[from].map((low, part) => Math.round(low + (ramp[from + 1][part] - low) * (scaled - from)));
}

// Returns the colour of each of the 256 codes.
function palette(map, theme) {
  return Array.from({ length: 256 }, (_, code) => {
    const value = valueOf(map, code);
    return value === null ? RAMPS[theme].missing : onRamp(RAMPS[theme][map.name], strength(map, value));
  });
}

function showValue(map, code) {
  const value = valueOf(map, code);
  if (value === null) return "not measured";
  const bound = code === 255 && map.scale === "ratio" ? "at least " : code === 1 && map.scale === "ratio" ? "at most " : "";
  return bound + (map.scale === "ratio" ? `${value.toFixed(2)}x` : `${(100 * value).toFixed(1)} %`);
}

function showDuration(seconds) {
  if (seconds === null) return "-";
  return seconds < 1 ? `${(seconds * 1e3).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
}

// Returns a moment in UTC; clocks of nodes can be anything.
function showClock(unixSeconds) {
  const moment = new Date(unixSeconds === null ? NaN : unixSeconds * 1000);
  return Number.isNaN(moment.getTime()) ? "unknown time" : `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function currentTheme() {
  if (window.matchMedia("print").matches) return "light";
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function rgb(parts) {
  return `rgb(${parts.join(",")})`;
}

function make(tag, text, attributes) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}
