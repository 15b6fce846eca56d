// What the keys and buttons of a map do.

const ACTIONS = {
  culprit: (maps) => maps.culpritRows.length && maps.goToRow(maps.culpritRows[0]),
  in: (maps) => maps.zoom(maps.window.count / 2),
  out: (maps) => maps.zoom(maps.window.count * 2),
  all: (maps) => maps.zoom(maps.rows),
};

const KEYS = {
  ArrowLeft: (maps) => maps.moveBins(-1),
  ArrowRight: (maps) => maps.moveBins(1),
  ArrowUp: (maps) => maps.moveRows(-1),
  ArrowDown: (maps) => maps.moveRows(1),
  PageUp: (maps) => maps.moveNodes(-1),
  PageDown: (maps) => maps.moveNodes(1),
  Home: (maps) => maps.moveBins(-maps.time.bins),
  End: (maps) => maps.moveBins(maps.time.bins),
  "+": ACTIONS.in,
  "=": ACTIONS.in,
  "-": ACTIONS.out,
  0: ACTIONS.all,
  c: ACTIONS.culprit,
  C: ACTIONS.culprit,
};
