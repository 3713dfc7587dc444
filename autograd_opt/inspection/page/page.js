"use strict";
// The whole graph is in the page: nodes by record number, and two layouts of it.
const G = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const canvas = $("view"), pen = canvas.getContext("2d");
const W = 128, H = 40, DARK = "#1b1f24", DARKSOFT = "#57606a";     // on a group's fill, which is light in both modes

// Colours come from the style sheet, which has a light and a dark set of them.
let INK, FAINT, SOFT, PAPER, EDGE, MARK, LEAF, PRUNED;
function colours() {
  const style = getComputedStyle(document.documentElement);
  [INK, FAINT, SOFT, PAPER, EDGE, MARK, LEAF, PRUNED] =
    ["ink", "faint", "soft", "paper", "edge", "mark", "leaf", "pruned"].map(name => style.getPropertyValue("--" + name).trim());
}
colours();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); redraw(); });

const users = G.nodes.map(() => []);
for (const n of G.nodes) for (const o of new Set(n.operands)) if (o !== null) users[o].push(n.index);
const texts = G.nodes.map(n => `%${n.index} ${n.op} ${n.name} ${n.expression} ${n.type} ${n.source || ""} ${n.module} ${n.kind} ${n.state}`.toLowerCase());

let optimized = false, layout = G.written, scale = 1, dx = 0, dy = 0, chosen = -1, hits = new Set();

const shown = i => layout[i] !== undefined;
const operands = n => optimized ? n.led : n.operands;
const leader = i => optimized ? G.nodes[i].leader : i;

// Drawing ------------------------------------------------------------------------------
let due = false;
function redraw() {
  if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
}

function draw() {
  const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== w * ratio || canvas.height !== h * ratio) { canvas.width = w * ratio; canvas.height = h * ratio; }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, w, h);
  pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * dx, ratio * dy);
  const left = -dx / scale - W, right = (w - dx) / scale + W, top = -dy / scale - H, bottom = (h - dy) / scale + H;
  const visible = [];
  pen.lineWidth = Math.max(1, .6 / scale);
  pen.strokeStyle = EDGE;
  pen.beginPath();
  for (const n of G.nodes) {
    if (!shown(n.index)) continue;
    const [x, y] = layout[n.index];
    if (x > left && x < right && y > top && y < bottom) visible.push(n);
    for (const o of new Set(operands(n))) {
      if (o === null || !shown(o)) continue;
      const [a, b] = layout[o];
      if (Math.max(x, a) < left || Math.min(x, a) > right || y < top || b > bottom) continue;
      line(a, b + H / 2, x, y - H / 2);
    }
  }
  pen.stroke();
  if (scale >= .3) arrows(visible);
  if (chosen >= 0 && shown(chosen)) neighbours(chosen);
  if (scale < .08) dots(visible); else for (const n of visible) box(n);
}

function line(x0, y0, x1, y1) {
  const middle = (y0 + y1) / 2, rows = (y1 - y0 + H) / G.row;
  pen.moveTo(x0, y0);
  if (rows < 1.5) { pen.bezierCurveTo(x0, middle, x1, middle, x1, y1); return; }
  // an edge over several rows swings out to the side: behind the boxes between nobody would see it
  const side = Math.max(x0, x1) + W * Math.min(2.5, .8 + .08 * rows), bend = Math.min(G.row, (y1 - y0) / 3);
  pen.bezierCurveTo(x0, y0 + bend, side, y0 + bend, side, middle);
  pen.bezierCurveTo(side, y1 - bend, x1, y1 - bend, x1, y1);
}

// Every edge enters its box from above, so one arrowhead stands for all of them.
function arrows(nodes) {
  pen.fillStyle = EDGE;
  pen.beginPath();
  for (const n of nodes) {
    if (!operands(n).some(o => o !== null && shown(o))) continue;
    const [x, y] = layout[n.index], tip = y - H / 2 - (n.is_output ? 4 : 0);
    pen.moveTo(x, tip); pen.lineTo(x - 4, tip - 8); pen.lineTo(x + 4, tip - 8); pen.closePath();
  }
  pen.fill();
}

function neighbours(i) {
  const [x, y] = layout[i];
  pen.save();
  pen.strokeStyle = MARK;
  pen.lineWidth = 2 / Math.min(1, scale);
  pen.beginPath();
  for (const o of operands(G.nodes[i])) if (o !== null && shown(o)) line(layout[o][0], layout[o][1] + H / 2, x, y - H / 2);
  for (const u of readers(i)) line(x, y + H / 2, layout[u][0], layout[u][1] - H / 2);
  pen.stroke();
  pen.restore();
}

function readers(i) {
  const members = optimized && G.nodes[i].merged.length ? G.nodes[i].merged : [i];
  const found = new Set(members.flatMap(m => users[m]).map(leader));
  return [...found].filter(shown);
}

function colour(n) {
  if (n.state === "pruned") return PRUNED;
  if (n.group >= 0) return G.palette[n.group % G.palette.length];
  return n.kind === "leaf" || n.kind === "constant" ? LEAF : PAPER;
}

function dots(nodes) {
  for (const n of nodes) {
    const [x, y] = layout[n.index];
    pen.fillStyle = hits.has(n.index) || n.index === chosen ? MARK : n.group >= 0 ? colour(n) : SOFT;
    pen.fillRect(x - W / 2, y - H / 2, W, H);
  }
}

function outline(n, x, y, grow) {
  const l = x - W / 2 - grow, r = x + W / 2 + grow, t = y - H / 2 - grow, b = y + H / 2 + grow;
  pen.beginPath();
  if (n.pinned) polygon([[l + 12, t], [r - 12, t], [r, y], [r - 12, b], [l + 12, b], [l, y]]);
  else if (n.kind === "opaque") polygon([[l + 14, t], [r, t], [r - 14, b], [l, b]]);
  else pen.roundRect(l, t, r - l, b - t, n.kind === "operation" ? 16 : 0);
}

function polygon(points) {
  points.forEach(([x, y], k) => k ? pen.lineTo(x, y) : pen.moveTo(x, y));
  pen.closePath();
}

function box(n) {
  const [x, y] = layout[n.index], gone = n.state === "pruned", ink = gone ? FAINT : INK, filled = n.group >= 0 && !gone;
  pen.strokeStyle = ink;
  pen.lineWidth = n.kind === "leaf" ? 2 : 1.2;
  if (n.is_output) { outline(n, x, y, 4); pen.fillStyle = PAPER; pen.fill(); pen.stroke(); }
  outline(n, x, y, 0);
  pen.fillStyle = colour(n);
  pen.fill();
  pen.setLineDash(n.kind === "constant" || n.state === "merged" ? [5, 3] : []);
  if (n.index === chosen || hits.has(n.index)) { pen.strokeStyle = MARK; pen.lineWidth = 3; }
  pen.stroke();
  pen.setLineDash([]);
  if (scale < .3) return;
  pen.textAlign = "center";
  pen.fillStyle = filled ? DARK : ink;
  pen.font = "12px sans-serif";
  const times = optimized && n.merged.length ? ` ×${n.merged.length}` : "";
  pen.fillText(`%${n.index} ${n.title}${times}`, x, y - 2, W - 12);
  if (gone) pen.fillRect(x - W / 2 + 10, y - 6, W - 20, 1);
  pen.fillStyle = gone ? FAINT : filled ? DARKSOFT : SOFT;
  pen.font = "10px sans-serif";
  pen.fillText(n.type, x, y + 13, W - 16);
}

// Moving -------------------------------------------------------------------------------
function fit() {
  let l = Infinity, r = -Infinity, t = Infinity, b = -Infinity;
  for (const i in layout) {
    const [x, y] = layout[i];
    l = Math.min(l, x - W); r = Math.max(r, x + W); t = Math.min(t, y - H); b = Math.max(b, y + H);
  }
  if (l > r) return;
  const w = canvas.clientWidth, h = canvas.clientHeight;
  scale = Math.min(1.2, w / (r - l), h / (b - t));
  dx = w / 2 - scale * (l + r) / 2;
  dy = h / 2 - scale * (t + b) / 2;
  redraw();
}

// A graph too large for its texts is opened at its first operation, where they can be read.
function open() {
  fit();
  if (scale >= .35) return;
  const first = G.nodes.find(n => shown(n.index) && n.kind !== "leaf" && n.kind !== "constant") || G.nodes.find(n => shown(n.index));
  if (!first) return;
  scale = .7;
  dx = canvas.clientWidth / 2 - scale * layout[first.index][0];
  dy = canvas.clientHeight / 5 - scale * layout[first.index][1];
  redraw();
}

function zoom(factor, x, y) {
  const next = Math.min(4, Math.max(.005, scale * factor));
  dx = x - (x - dx) * next / scale;
  dy = y - (y - dy) * next / scale;
  scale = next;
  redraw();
}

function go(i) {
  if (!G.nodes[i]) return;
  i = leader(i);
  if (!shown(i)) return;
  if (scale < .5) scale = .8;
  dx = canvas.clientWidth / 2 - scale * layout[i][0];
  dy = canvas.clientHeight / 2 - scale * layout[i][1];
  choose(i);
}

function at(event) {
  const area = canvas.getBoundingClientRect();
  const x = (event.clientX - area.left - dx) / scale, y = (event.clientY - area.top - dy) / scale;
  for (let k = G.nodes.length - 1; k >= 0; k--) {
    if (!shown(k)) continue;
    const [a, b] = layout[k];
    if (Math.abs(x - a) <= W / 2 && Math.abs(y - b) <= H / 2) return k;
  }
  return -1;
}

let held = null;
const fingers = new Map();      // pointer -> where it is; two of them pinch
canvas.addEventListener("pointerdown", e => {
  fingers.set(e.pointerId, {x: e.clientX, y: e.clientY});
  held = {x: e.clientX, y: e.clientY, moved: fingers.size > 1};
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointermove", e => {
  if (!held) { const i = at(e); canvas.title = i < 0 ? "" : summary(i); return; }
  if (fingers.size > 1) { pinch(e); return; }
  held.moved ||= Math.hypot(e.clientX - held.x, e.clientY - held.y) > 4;
  if (!held.moved) return;
  dx += e.clientX - held.x; dy += e.clientY - held.y;
  held.x = e.clientX; held.y = e.clientY;
  fingers.set(e.pointerId, {x: e.clientX, y: e.clientY});
  redraw();
});

function pinch(e) {
  const moved = fingers.get(e.pointerId), other = [...fingers].find(([id]) => id !== e.pointerId)[1];
  if (!moved) return;
  const before = Math.hypot(moved.x - other.x, moved.y - other.y), after = Math.hypot(e.clientX - other.x, e.clientY - other.y);
  const area = canvas.getBoundingClientRect();
  if (before) zoom(after / before, other.x - area.left, other.y - area.top);
  fingers.set(e.pointerId, {x: e.clientX, y: e.clientY});
}

function lift(e) {
  fingers.delete(e.pointerId);
  if (e.type === "pointerup" && held && !held.moved) choose(at(e));
  const [left] = fingers.values();
  held = left ? {...left, moved: true} : null;
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  const area = canvas.getBoundingClientRect();
  zoom(Math.exp(-e.deltaY / 500), e.clientX - area.left, e.clientY - area.top);
}, {passive: false});
window.addEventListener("resize", redraw);
document.addEventListener("keydown", e => {
  if (e.target.tagName === "INPUT") { if (e.key === "Escape") e.target.blur(); return; }
  if (e.key === "/") { e.preventDefault(); $("search").focus(); }
  else if (e.key === "0") fit();
  else if (e.key === "n" || e.key === "p") hit(e.key === "n" ? 1 : -1);
  else if (e.key in ARROWS && document.activeElement === canvas) { e.preventDefault(); step(...ARROWS[e.key]); }
  else if (e.key === "+" || e.key === "-") zoom(e.key === "+" ? 1.3 : 1 / 1.3, canvas.clientWidth / 2, canvas.clientHeight / 2);
});

// Arrow keys go from the chosen node to the nearest one in that direction; distance across counts three times.
const ARROWS = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]};
function step(right, down) {
  if (!shown(chosen)) { const first = G.nodes.find(n => shown(n.index)); if (first) go(first.index); return; }
  const [x, y] = layout[chosen];
  let best = -1, least = Infinity;
  for (const n of G.nodes) {
    if (!shown(n.index)) continue;
    const a = layout[n.index][0] - x, b = layout[n.index][1] - y, along = a * right + b * down;
    const cost = along + 3 * Math.abs(a * down + b * right);
    if (along > 0 && cost < least) { best = n.index; least = cost; }
  }
  if (best >= 0) go(best);
}

// The next or previous node that the search has found, seen from the chosen one.
function hit(step) {
  const found = [...hits], k = found.indexOf(chosen);
  if (found.length) go(found[k < 0 ? (step > 0 ? 0 : found.length - 1) : (k + step + found.length) % found.length]);
}

// The side -------------------------------------------------------------------------------
function summary(i) {
  const n = G.nodes[i];
  return [`%${i} = ${n.expression}`, n.type, n.source || ""].filter(Boolean).join("\n");
}

function link(i, text, inline) {
  const a = document.createElement("a");
  a.textContent = text;
  a.tabIndex = 0;
  a.className = inline ? "inline" : "";
  a.onclick = () => go(i);
  a.onkeydown = e => { if (e.key === "Enter") go(i); };
  return a;
}

function row(list, name, ...values) {
  const dt = document.createElement("dt"), dd = document.createElement("dd");
  dt.textContent = name;
  values.forEach((v, k) => { if (k) dd.append(", "); dd.append(v); });
  list.append(dt, dd);
}

function section(side, title, items) {
  if (!items.length) return;
  const h = document.createElement("h3");
  h.textContent = title;
  side.append(h, ...items);
}

function choose(i) {
  chosen = i;
  const side = $("details");
  side.replaceChildren();
  redraw();
  if (i < 0) { side.append($("legend").content.cloneNode(true)); return; }
  const n = G.nodes[i], head = document.createElement("h2"), list = document.createElement("dl");
  head.textContent = `%${i} = ${n.expression}`;
  side.append(head, list);
  row(list, "operator", n.op);
  row(list, "kind", [n.kind, n.state, n.pinned ? "pinned" : "", n.is_output ? "output" : ""].filter(Boolean).join(", "));
  row(list, "value", n.type);
  row(list, "gradient", n.requires_grad ? "required" : "not required");
  for (const name in n.attributes) row(list, name, JSON.stringify(n.attributes[name]));
  if (n.name) row(list, "name", n.name);
  if (n.module) row(list, "module", n.module);
  if (n.source) row(list, "source", n.source);
  const inputs = operands(n).filter(o => o !== null);
  if (inputs.length) row(list, "operands", ...inputs.map(o => link(o, `%${o} ${G.nodes[o].op}`, true)));
  const outputs = readers(i);
  if (outputs.length) row(list, "used by", ...outputs.slice(0, 40).map(u => link(u, `%${u} ${G.nodes[u].op}`, true)),
                          ...(outputs.length > 40 ? [`and ${outputs.length - 40} more`] : []));
  const rule = Object.entries(n.rule).map(([name, text]) => {
    const p = document.createElement("code");
    p.textContent = `${name === "all" ? "all operands" : "cotangent of " + name}: ${text}`;
    const d = document.createElement("div");
    d.append(p);
    return d;
  });
  if (n.kind === "opaque") rule.push("torch's own derivative of this one call");
  section(side, "rule (g: cotangent, ans: output, H: conjugate)", rule);
  const group = G.nodes[n.leader].merged;
  section(side, `one value, written ${group.length} times`, group.map(m => link(m, `%${m} ${G.nodes[m].source || ""}`)));
}

function search() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  hits = new Set();
  if (words.length) G.nodes.forEach(n => { if (words.every(w => texts[n.index].includes(w))) hits.add(n.index); });
  $("hits").replaceChildren(...[...hits].slice(0, 200).map(i => link(i, `%${i} = ${G.nodes[i].expression}  ${G.nodes[i].source || ""}`)));
  counts();
  redraw();
}

function counts() {
  const nodes = Object.keys(layout).length;
  $("count").textContent = `${nodes} nodes` + ($("search").value ? `, ${hits.size} found` : "");
}

$("search").addEventListener("input", search);
$("search").addEventListener("keydown", e => { if (e.key === "Enter" && hits.size) go([...hits][0]); });
$("fit").onclick = fit;
$("optimized").onchange = e => {
  optimized = e.target.checked;
  layout = optimized ? G.optimized : G.written;
  if (chosen >= 0) choose(leader(chosen));
  counts();
  fit();
};
choose(-1);
if (G.opensOptimized) {
  $("optimized").checked = optimized = true;
  layout = G.optimized;
}
counts();
open();
// page.html#7 opens at node 7
if (/^#\d+$/.test(location.hash)) go(Number(location.hash.slice(1)));
draw();
document.body.dataset.ready = Math.round(performance.now());
