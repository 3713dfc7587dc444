"use strict";
// The whole graph is in the page: nodes by record number, and the groups in which they are folded.
const G = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const canvas = $("view"), pen = canvas.getContext("2d");
const DARK = "#1b1f24", DARKSOFT = "#57606a";     // on a group's fill, which is light in both modes
let optimized = false, homes = G.written;
const opened = new Set(G.open);
const letters = new Map(G.shared.map((s, k) => [s.node, k]));
const present = n => !optimized || n.state === "kept";
const operands = n => optimized ? n.led : n.operands;
const leader = i => optimized ? G.nodes[i].leader : i;

// What is shown: a box for each node that no folded group holds and for each folded group, and where these stand.
const READERS = 8;             // values that more boxes read are named in these boxes instead of joined to them by lines
const TREES = 8;               // a box that reads more of them names their number instead
const COLUMNS = 6;             // of boxes that no line places
const GAP = 38, TITLE = 24, DOUBLE = 4;          // between layers, of a title, between two outlines

const parents = G.groups.map(g => g.parent);
const around = g => { const found = []; for (; g >= 0; g = parents[g]) found.unshift(g); return found; };
const isLeaf = n => n.kind === "leaf" || n.kind === "constant";
const keyOf = g => "g" + g;

// The box in which a node is shown: its own number, or that of the outermost folded group around it.
function boxOf(i) {
  for (const g of around(homes[i])) if (!opened.has(g)) return keyOf(g);
  return i;
}

function collect() {
  const above = [];                     // values that stand above the boxes in which they are tags
  const boxes = new Map(), lines = new Map(), readers = new Map(), at = new Map();
  for (const n of G.nodes) {
    if (!present(n)) continue;
    const key = boxOf(n.index);
    at.set(n.index, key);
    if (!boxes.has(key)) {
      const group = typeof key === "string" ? Number(key.slice(1)) : -1;
      boxes.set(key, {key, group, node: group < 0 ? n : null, members: [], tags: [], parent: group < 0 ? homes[n.index] : parents[group]});
    }
    boxes.get(key).members.push(n.index);
  }
  // a leaf that is read in several boxes is repeated in each of them
  for (const n of G.nodes) {
    if (!present(n)) continue;
    for (const o of operands(n)) {
      if (o === null) continue;
      if (!readers.has(o)) readers.set(o, new Set());
      readers.get(o).add(at.get(n.index));
    }
  }
  const grown = key => typeof key === "string" && G.groups[Number(key.slice(1))].kind === "tree";
  const repeated = o => isLeaf(G.nodes[o]) && (readers.get(o).size > 1 || at.get(o) !== o && !readers.get(o).has(at.get(o)) ||
    [...readers.get(o)].every(grown));
  const out = new Map();
  for (const n of G.nodes) {
    if (!present(n)) continue;
    const to = at.get(n.index);
    for (const o of new Set(operands(n))) {
      if (o === null || at.get(o) === to) continue;
      if (repeated(o)) { tag(boxes.get(to), o, G.nodes[o].name || `%${o}`, -1); continue; }
      const from = at.get(o);
      if (!out.has(from)) out.set(from, new Map());
      const ends = out.get(from);
      if (!ends.has(to)) ends.set(to, new Set());
      ends.get(to).add(o);
    }
  }
  for (const [from, ends] of out) for (const [to, values] of ends) {
    if (ends.size > READERS) {
      for (const o of values) {
        const letter = letters.get(o);
        tag(boxes.get(to), o, letter === undefined ? `%${o} ${G.nodes[o].title}` : G.shared[letter].letter, letter ?? -1);
      }
      above.push({from, to});
    } else lines.set(`${from}>${to}`, {from, to, count: values.size, points: []});
  }
  const trees = new Map();              // what sums a population, say
  for (const {from, to} of lines.values()) if (grown(from)) trees.set(to, (trees.get(to) || 0) + 1);
  for (const [key, {from, to}] of lines) if (grown(from) && trees.get(to) > TREES) {
    lines.delete(key);
    tag(boxes.get(to), boxes.get(from).members[0], `${trees.get(to)} trees`, -1);
  }
  for (const [key, box] of boxes) {
    const node = box.node;
    if (node && isLeaf(node) && readers.has(key) && repeated(key)) boxes.delete(key);
    const own = node ? letters.get(node.leader) : undefined;
    if (own !== undefined) tag(box, node.leader, G.shared[own].letter, own);
    if (box.group >= 0) for (const k of G.groups[box.group].letters) tag(box, G.shared[k].node, G.shared[k].letter, k);
  }
  return [boxes, lines, above.filter(({from, to}) => boxes.has(from) && boxes.has(to))];
}

function tag(box, node, text, letter) {
  if (!box.tags.some(t => t.text === text)) box.tags.push({node, text, letter});
}

function measure(box) {
  const [title, detail] = textsOf(box);
  pen.font = "12px sans-serif";
  const width = Math.max(pen.measureText(title).width, .84 * pen.measureText(detail).width);
  box.title = title; box.detail = detail;
  box.w = Math.max(84, Math.min(340, width + 26));
  // tags in rows below the texts
  pen.font = "10px sans-serif";
  let x = 8, y = 0;
  box.shownTags = [];
  for (const t of box.tags) {
    const w = pen.measureText(t.text).width + 8;
    if (x + w > box.w - 8 && x > 8) { x = 8; y += 16; }
    if (y >= 48) { box.shownTags.push({x, y, w: 16, text: "…", letter: -1}); break; }
    box.shownTags.push({...t, x, y, w: Math.min(w, box.w - 16)});
    x += w + 4;
  }
  box.h = 40 + (box.tags.length ? y + 18 : 0);
}

// The placement: the lines' boxes in layers, the others in rows, frames around what an open group holds.
function place() {
  const [boxes, lines, above] = collect(), graph = new dagre.graphlib.Graph({compound: true});
  graph.setGraph({nodesep: 22, ranksep: GAP, marginx: 20, marginy: 20});
  graph.setDefaultEdgeLabel(() => ({}));
  const shelf = G.shared.map((s, k) => [`s${k}`, {key: `s${k}`, shared: k, group: -1, node: null, members: [], tags: s.letters.map(
    j => ({node: G.shared[j].node, text: G.shared[j].letter, letter: j})), parent: -1}]);
  const all = new Map([...shelf, ...boxes]), frames = new Map();
  for (const box of all.values()) {
    measure(box);
    graph.setNode(String(box.key), {width: box.w, height: box.h});
    for (const g of around(box.parent)) {
      if (!frames.has(g)) { frames.set(g, {group: g}); graph.setNode("f" + g, {}); if (parents[g] >= 0) graph.setParent("f" + g, "f" + parents[g]); }
    }
    if (box.parent >= 0) graph.setParent(String(box.key), "f" + box.parent);
  }
  for (const {from, to} of lines.values()) {
    // what is joined within a frame stays in line
    graph.setEdge(String(from), String(to), {weight: all.get(from).parent === all.get(to).parent && all.get(from).parent >= 0 ? 8 : 1});
  }
  for (const {from, to} of above) graph.setEdge(String(from), String(to), {weight: 0});       // not drawn
  rows(units(all, [...lines.values(), ...above], frames), graph);
  dagre.layout(graph);
  for (const box of all.values()) { const p = graph.node(String(box.key)); box.x = p.x; box.y = p.y; }
  const tall = new Map();              // the height of each layer
  for (const box of all.values()) tall.set(Math.round(box.y), Math.max(box.h, tall.get(Math.round(box.y)) || 0));
  for (const line of lines.values()) line.points = route(all.get(line.from), all.get(line.to), graph.edge(String(line.from), String(line.to)).points, tall);
  for (const frame of frames.values()) {
    const p = graph.node("f" + frame.group);
    Object.assign(frame, {l: p.x - p.width / 2, t: p.y - p.height / 2, r: p.x + p.width / 2, b: p.y + p.height / 2});
  }
  // room for the titles of frames within frames, the innermost first
  for (const frame of [...frames.values()].sort((a, b) => around(b.group).length - around(a.group).length)) {
    const outer = frames.get(parents[frame.group]);
    if (outer) outer.t = Math.min(outer.t, frame.t - TITLE);
  }
  return {boxes: all, lines: [...lines.values()], frames: [...frames.values()]};
}

// From the lower edge of one box to the upper edge of another; straight down beside the boxes of a layer, so that a line
// slants between layers only.
function route(from, to, given, tall) {
  const inner = given.slice(1, -1), half = y => (tall.get(Math.round(y)) || 0) / 2;
  const clamp = (x, box) => Math.max(box.x - box.w / 2 + 12, Math.min(box.x + box.w / 2 - 12, x));
  const x0 = clamp((inner[0] || to).x, from), x1 = clamp((inner[inner.length - 1] || from).x, to);
  const points = [{x: x0, y: from.y + from.h / 2}, {x: x0, y: from.y + half(from.y)}];
  for (const p of inner) if (half(p.y)) points.push({x: p.x, y: p.y - half(p.y)}, {x: p.x, y: p.y + half(p.y)}); else points.push(p);
  points.push({x: x1, y: to.y - half(to.y)}, {x: x1, y: to.y - to.h / 2 - (to.node && to.node.is_output ? DOUBLE : 0)});
  // the last two differ: they say which way the arrowhead points
  return points.filter((p, k) => k === points.length - 1 || p.y < points[k + 1].y - .5);
}

// What no line joins to anything beside it, by the frame around it: single boxes, and frames as a whole.
function units(all, lines, frames) {
  const joined = new Set(), found = new Map();
  for (const {from, to} of lines) {
    joined.add(from).add(to);
    const a = around(all.get(from).parent), b = around(all.get(to).parent);
    for (const g of a) if (!b.includes(g)) joined.add(keyOf(g));
    for (const g of b) if (!a.includes(g)) joined.add(keyOf(g));
  }
  const add = (parent, unit) => { if (!found.has(parent)) found.set(parent, []); found.get(parent).push(unit); };
  for (const box of all.values()) if (!joined.has(box.key)) add(box.parent, {first: box.key, last: box.key, key: box.key});
  for (const g of frames.keys()) if (!joined.has(keyOf(g))) {
    const inside = [...all.values()].filter(box => around(box.parent).includes(g)).map(box => box.key);
    add(parents[g], {first: inside[0], last: inside[inside.length - 1], key: keyOf(g)});
  }
  return found;
}

// Rows of such boxes: named values, what else trees share, and the others, each kind from a new row on.
function rows(found, graph) {
  const kindOf = key => String(key)[0] === "s" ? 0 : String(key)[0] === "g" && G.groups[Number(key.slice(1))].kind === "shared" ? 1 : 2;
  const order = key => typeof key === "number" ? key : Number(key.slice(1));
  for (const some of found.values()) {
    const columns = Math.max(COLUMNS, Math.ceil(Math.sqrt(some.length / 3)));
    let above = [];
    for (const kind of [0, 1, 2]) {
      const units = some.filter(u => kindOf(u.key) === kind).sort((a, b) => order(a.key) - order(b.key));
      for (let k = 0; k < units.length; k += columns) {
        const row = units.slice(k, k + columns);
        row.forEach((unit, c) => {
          const over = above[Math.min(c, above.length - 1)];
          if (over) graph.setEdge(String(over.last), String(unit.first), {weight: above[c] ? 9 : 0});
        });
        above = row;
      }
    }
  }
}
