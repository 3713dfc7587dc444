// Colours come from the style sheet, which has a light and a dark set of them.
let INK, FAINT, SOFT, PAPER, EDGE, MARK, LEAF, PRUNED, FRAME;
function colours() {
  const style = getComputedStyle(document.documentElement);
  [INK, FAINT, SOFT, PAPER, EDGE, MARK, LEAF, PRUNED, FRAME] =
    ["ink", "faint", "soft", "paper", "edge", "mark", "leaf", "pruned", "frame"].map(name => style.getPropertyValue("--" + name).trim());
}
colours();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); redraw(); });

const users = G.nodes.map(() => []);
for (const n of G.nodes) for (const o of new Set(n.operands)) if (o !== null) users[o].push(n.index);
const texts = G.nodes.map(n => `%${n.index} ${n.op} ${n.name} ${n.expression} ${n.type} ${n.source || ""} ${n.module} ${n.kind} ${n.state}`.toLowerCase());
const held = G.groups.map(() => [[], []]);           // the nodes of each group, as written and optimized
for (const n of G.nodes) {
  for (const g of around(G.written[n.index])) held[g][0].push(n.index);
  if (n.state === "kept") for (const g of around(G.optimized[n.index])) held[g][1].push(n.index);
}

function textsOf(box) {
  if (box.shared !== undefined) {
    const s = G.shared[box.shared];
    return [`${s.letter} = ${s.formula}`, optimized ? `computed once for ${s.trees} trees` : `written in ${s.trees} trees`];
  }
  if (box.group >= 0) {
    const g = G.groups[box.group], n = box.members.length, merged = box.members.filter(i => G.nodes[i].state === "merged").length;
    const like = g.like ? `, like ${g.like}` : "", gone = merged && !optimized ? `, ${merged} merged` : "";
    return [g.title, `${n} node${n === 1 ? "" : "s"}${like || (g.told ? ": " + g.told : "")}${gone}`];
  }
  const n = box.node, times = optimized && n.merged.length ? ` ×${n.merged.length}` : "";
  return [`%${n.index} ${n.title}${times}`, `${n.short || n.type}${n.state === "merged" ? `, same as %${n.leader}` : ""}`];
}

// Drawing ------------------------------------------------------------------------------
let scene, layout = {}, scale = 1, dx = 0, dy = 0, chosen = -1, hits = new Set(), due = false;

function redraw() {
  if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
}

// Place everything anew; what `anchor` names stays where it is on the screen.
function arrange(anchor) {
  const before = spot(anchor);
  scene = place();
  layout = {};
  for (const box of scene.boxes.values()) layout[box.key] = [box.x, box.y];
  const after = spot(anchor);
  if (before && after) { dx += scale * (before[0] - after[0]); dy += scale * (before[1] - after[1]); }
  counts();
  redraw();
}

// Upper left corner of a box, or of the frame that a group has become.
function spot(key) {
  if (!scene || key === undefined) return null;
  const box = scene.boxes.get(key), frame = scene.frames.find(f => keyOf(f.group) === key);
  return box ? [box.x - box.w / 2, box.y - box.h / 2] : frame ? [frame.l, frame.t] : null;
}

function draw() {
  const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== w * ratio || canvas.height !== h * ratio) { canvas.width = w * ratio; canvas.height = h * ratio; }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, w, h);
  pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * dx, ratio * dy);
  for (const f of scene.frames) frame(f);
  const thin = Math.max(1, .6 / scale), near = [];
  for (const l of scene.lines) {
    if (l.from === chosen || l.to === chosen) near.push(l); else line(l, EDGE, l.count > 1 ? 2 * thin : thin);
  }
  for (const l of near) line(l, MARK, 2.5 * thin);
  for (const b of scene.boxes.values()) box(b);
}

function frame(f) {
  pen.strokeStyle = keyOf(f.group) === chosen ? MARK : FAINT;
  pen.fillStyle = FRAME;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.roundRect(f.l, f.t - 14, f.r - f.l, f.b - f.t + 14, 6);
  pen.fill();
  pen.stroke();
  pen.fillStyle = SOFT;
  pen.textAlign = "left";
  pen.font = "12px sans-serif";
  pen.fillText(cut(`− ${G.groups[f.group].title}`, f.r - f.l - 16), f.l + 8, f.t + 2);
}

// As much of a text as has room.
function cut(text, room) {
  if (pen.measureText(text).width <= room) return text;
  let n = text.length - 1;
  while (n > 1 && pen.measureText(text.slice(0, n) + "…").width > room) n--;
  return text.slice(0, n) + "…";
}

function line(l, colour, width) {
  const p = l.points, last = p[p.length - 1], back = p[p.length - 2];
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(p[0].x, p[0].y);
  for (let k = 1; k < p.length - 1; k++) pen.quadraticCurveTo(p[k].x, p[k].y, (p[k].x + p[k + 1].x) / 2, (p[k].y + p[k + 1].y) / 2);
  pen.lineTo(last.x, last.y);
  pen.stroke();
  const angle = Math.atan2(last.y - back.y, last.x - back.x), size = 7 + width;
  pen.beginPath();
  pen.moveTo(last.x, last.y);
  for (const turn of [2.7, -2.7]) pen.lineTo(last.x + size * Math.cos(angle + turn), last.y + size * Math.sin(angle + turn));
  pen.fill();
}

const UNNAMED = "#e6e0d4";      // written several times, where colours stand for letters
const shade = k => G.palette[k % G.palette.length];
function colour(b) {
  if (b.shared !== undefined) return shade(b.shared);
  if (!b.node) return PAPER;
  if (b.node.state === "pruned") return PRUNED;
  if (b.node.group >= 0) return letters.has(b.node.leader) ? shade(letters.get(b.node.leader)) : G.shared.length ? UNNAMED : shade(b.node.group);
  return isLeaf(b.node) ? LEAF : PAPER;
}

function outline(b, grow) {
  const l = b.x - b.w / 2 - grow, r = b.x + b.w / 2 + grow, t = b.y - b.h / 2 - grow, low = b.y + b.h / 2 + grow, n = b.node;
  pen.beginPath();
  if (b.group >= 0) polygon([[l, t], [r - 34, t], [r - 30, t - 6], [r - 6, t - 6], [r - 2, t], [r, t], [r, low], [l, low]]);
  else if (n && n.pinned) polygon([[l + 12, t], [r - 12, t], [r, b.y], [r - 12, low], [l + 12, low], [l, b.y]]);
  else if (n && n.kind === "opaque") polygon([[l + 14, t], [r, t], [r - 14, low], [l, low]]);
  else pen.roundRect(l, t, r - l, low - t, n && isLeaf(n) ? 0 : 14);
}

function polygon(points) {
  points.forEach(([x, y], k) => k ? pen.lineTo(x, y) : pen.moveTo(x, y));
  pen.closePath();
}

function box(b) {
  const n = b.node, gone = n && n.state === "pruned", ink = gone ? FAINT : INK, fill = colour(b), filled = b.shared !== undefined || n && n.group >= 0 && !gone;
  const found = b.members.some(i => hits.has(i));
  pen.strokeStyle = ink;
  pen.lineWidth = n && n.kind === "leaf" ? 2 : 1.2;
  if (n && n.is_output) { outline(b, DOUBLE); pen.fillStyle = PAPER; pen.fill(); pen.stroke(); }
  outline(b, 0);
  pen.fillStyle = fill;
  pen.fill();
  pen.setLineDash(n && (n.kind === "constant" || n.state === "merged") ? [5, 3] : []);
  if (b.key === chosen || found) { pen.strokeStyle = MARK; pen.lineWidth = 3; }
  pen.stroke();
  pen.setLineDash([]);
  if (scale < .15) return;
  const top = b.y - b.h / 2;
  pen.textAlign = "center";
  pen.fillStyle = filled ? DARK : ink;
  pen.font = "12px sans-serif";
  pen.fillText(b.title, b.x, top + 17, b.w - 12);
  if (gone) pen.fillRect(b.x - b.w / 2 + 10, top + 13, b.w - 20, 1);
  pen.fillStyle = gone ? FAINT : filled ? DARKSOFT : SOFT;
  pen.font = "10px sans-serif";
  pen.fillText(b.detail, b.x, top + 32, b.w - 16);
  for (const t of b.shownTags) {
    const x = b.x - b.w / 2 + t.x, y = top + 38 + t.y;
    pen.fillStyle = t.letter >= 0 ? shade(t.letter) : filled ? PAPER : LEAF;
    pen.fillRect(x, y, t.w, 14);
    pen.fillStyle = t.letter >= 0 ? DARK : SOFT;
    pen.fillText(t.text, x + t.w / 2, y + 11, t.w - 4);
  }
}

// Moving -------------------------------------------------------------------------------
function fit() {
  let l = Infinity, r = -Infinity, t = Infinity, b = -Infinity;
  for (const x of scene.boxes.values()) {
    l = Math.min(l, x.x - x.w / 2 - 30); r = Math.max(r, x.x + x.w / 2 + 30);
    t = Math.min(t, x.y - x.h / 2 - 30); b = Math.max(b, x.y + x.h / 2 + 30);
  }
  for (const f of scene.frames) { l = Math.min(l, f.l - 10); r = Math.max(r, f.r + 10); t = Math.min(t, f.t - 24); }
  if (l > r) return;
  const w = canvas.clientWidth, h = canvas.clientHeight;
  scale = Math.min(1.2, w / (r - l), h / (b - t));
  dx = w / 2 - scale * (l + r) / 2;
  dy = h / 2 - scale * (t + b) / 2;
  redraw();
}

// A picture too large for its texts is opened at its top, where they can be read.
function start() {
  fit();
  if (scale >= .55 || !scene.boxes.size) return;
  const all = [...scene.boxes.values()];
  const first = all.reduce((a, b) => b.y < a.y - 1 || Math.abs(b.y - a.y) <= 1 && b.x < a.x ? b : a);
  const left = Math.min(...all.map(b => b.x - b.w / 2)) - 30, right = Math.max(...all.map(b => b.x + b.w / 2)) + 30;
  scale = Math.max(.55, Math.min(.9, canvas.clientWidth / (right - left)));
  const fits = (right - left) * scale <= canvas.clientWidth + 1;
  dx = fits ? canvas.clientWidth / 2 - scale * (left + right) / 2 : Math.min(-scale * left, canvas.clientWidth / 2 - scale * first.x);
  dy = 60 - scale * (first.y - first.h / 2);
  redraw();
}

function zoom(factor, x, y) {
  const next = Math.min(4, Math.max(.02, scale * factor));
  dx = x - (x - dx) * next / scale;
  dy = y - (y - dy) * next / scale;
  scale = next;
  redraw();
}

// Show a node, whatever has to be unfolded for it, or a group's box.
function go(key) {
  if (typeof key === "number") {
    if (!G.nodes[key]) return;
    key = leader(key);
    if (!present(G.nodes[key])) return;
    const closed = around(homes[key]).filter(g => !opened.has(g));
    if (closed.length) { closed.forEach(g => opened.add(g)); arrange(); }
  }
  if (layout[key]) {
    if (scale < .5) scale = .8;
    dx = canvas.clientWidth / 2 - scale * layout[key][0];
    dy = canvas.clientHeight / 2 - scale * layout[key][1];
  }
  choose(key);
}

function toggle(g) {
  if (opened.has(g)) { for (const x of [...opened]) if (around(x).includes(g)) opened.delete(x); } else opened.add(g);
  arrange(keyOf(g));
  choose(keyOf(g));
}

// One level more or less of everything.
function level(more) {
  if (more) {
    const closed = [...scene.boxes.values()].filter(b => b.group >= 0);
    if (closed.reduce((n, b) => n + Math.min(b.members.length, 48), scene.boxes.size) > 1500 && closed.length > 1) {
      $("count").textContent = "too many for one picture: unfold one by a click";
      return;
    }
    closed.forEach(b => opened.add(b.group));
  } else {
    const deepest = Math.max(0, ...[...opened].map(g => around(g).length));
    for (const g of [...opened]) if (around(g).length === deepest) opened.delete(g);
  }
  arrange();
  start();
}

// What is at a place of the screen: a box's key, or the group whose frame's title is there.
function at(event) {
  const area = canvas.getBoundingClientRect();
  const x = (event.clientX - area.left - dx) / scale, y = (event.clientY - area.top - dy) / scale;
  for (const b of scene.boxes.values()) if (Math.abs(x - b.x) <= b.w / 2 && Math.abs(y - b.y) <= b.h / 2) {
    const t = b.shownTags.find(t => t.node !== undefined && x >= b.x - b.w / 2 + t.x && x <= b.x - b.w / 2 + t.x + t.w
      && y >= b.y - b.h / 2 + 38 + t.y && y <= b.y - b.h / 2 + 52 + t.y);
    return {key: b.key, tag: t && t.node};
  }
  for (const f of [...scene.frames].reverse())
    if (x >= f.l && x <= f.r && y >= f.t - 14 && y <= f.t + 8) return {key: keyOf(f.group)};
  return {key: -1};
}

function activate({key, tag}) {
  if (tag !== undefined) choose(tag);
  else if (typeof key === "string" && key[0] === "g") toggle(Number(key.slice(1)));
  else choose(key);
}

let grip = null;
const fingers = new Map();      // pointer -> where it is; two of them pinch
canvas.addEventListener("pointerdown", e => {
  fingers.set(e.pointerId, {x: e.clientX, y: e.clientY});
  grip = {x: e.clientX, y: e.clientY, moved: fingers.size > 1};
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointermove", e => {
  if (!grip) { const {key} = at(e); canvas.title = key === -1 ? "" : summary(key); return; }
  if (fingers.size > 1) { pinch(e); return; }
  grip.moved ||= Math.hypot(e.clientX - grip.x, e.clientY - grip.y) > 4;
  if (!grip.moved) return;
  dx += e.clientX - grip.x; dy += e.clientY - grip.y;
  grip.x = e.clientX; grip.y = e.clientY;
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
  if (e.type === "pointerup" && grip && !grip.moved) activate(at(e));
  const [left] = fingers.values();
  grip = left ? {...left, moved: true} : null;
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
  else if (e.key === "u" || e.key === "f") level(e.key === "u");
  else if (e.key in ARROWS && document.activeElement === canvas) { e.preventDefault(); step(...ARROWS[e.key]); }
  else if (e.key === "Enter" && document.activeElement === canvas) activate({key: chosen});
  else if (e.key === "+" || e.key === "-") zoom(e.key === "+" ? 1.3 : 1 / 1.3, canvas.clientWidth / 2, canvas.clientHeight / 2);
});

// Arrow keys go from the chosen box to the nearest one in that direction; distance across counts three times.
const ARROWS = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]};
function step(right, down) {
  const from = layout[chosen];
  let best, least = Infinity;
  for (const b of scene.boxes.values()) {
    if (!from) { best ??= b.key; continue; }
    const a = b.x - from[0], c = b.y - from[1], along = a * right + c * down;
    const cost = along + 3 * Math.abs(a * down + c * right);
    if (along > 0 && cost < least) { best = b.key; least = cost; }
  }
  if (best !== undefined) go(best);
}

// The next or previous node that the search has found, seen from the chosen one.
function hit(step) {
  const found = [...hits], k = found.indexOf(chosen);
  if (found.length) go(found[k < 0 ? (step > 0 ? 0 : found.length - 1) : (k + step + found.length) % found.length]);
}

// The side -------------------------------------------------------------------------------
function readers(i) {
  const members = optimized && G.nodes[i].merged.length ? G.nodes[i].merged : [i];
  const found = new Set(members.flatMap(m => users[m]).map(leader));
  return [...found].filter(u => present(G.nodes[u]));
}

function summary(key) {
  if (typeof key === "string") { const b = scene.boxes.get(key); return b ? `${b.title}\n${b.detail}` : G.groups[Number(key.slice(1))].name; }
  const n = G.nodes[key];
  return [`%${key} = ${n.expression}`, n.type, n.module, n.source || ""].filter(Boolean).join("\n");
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

function choose(key) {
  chosen = key;
  const side = $("details");
  side.replaceChildren();
  redraw();
  if (typeof key === "string" && key[0] === "s") { aboutNode(side, G.shared[Number(key.slice(1))].node); return; }
  if (typeof key === "string") { aboutGroup(side, Number(key.slice(1))); return; }
  if (key < 0) { side.append($("legend").content.cloneNode(true)); return; }
  aboutNode(side, key);
}

function aboutGroup(side, g) {
  const group = G.groups[g], head = document.createElement("h2"), list = document.createElement("dl"), inside = held[g][optimized ? 1 : 0];
  head.textContent = group.name;
  side.append(head, list);
  row(list, "folds", `${inside.length} nodes`);
  const ops = new Map();
  for (const i of inside) ops.set(G.nodes[i].op, (ops.get(G.nodes[i].op) || 0) + 1);
  row(list, "operators", [...ops].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([op, n]) => n > 1 ? `${op} ×${n}` : op).join(", "));
  const outer = around(g).slice(0, -1).map(x => G.groups[x].name);
  if (outer.length) row(list, "inside", outer.join(", "));
  if (group.like) row(list, "does the same as", group.like);
  section(side, "nodes", inside.slice(0, 60).map(i => link(i, `%${i} = ${G.nodes[i].expression}`)));
}

function aboutNode(side, i) {
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
  const rule = Object.entries(G.rules[n.op] || {}).map(([name, text]) => {
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
  const nodes = G.nodes.filter(present).length, found = $("search").value;
  $("count").textContent = `${nodes} nodes` + (found ? `, ${hits.size} found` : "");
  $("previous").disabled = $("next").disabled = !hits.size;
}

$("search").addEventListener("input", search);
$("search").addEventListener("keydown", e => { if (e.key === "Enter" && hits.size) hit(e.shiftKey ? -1 : 1); });
$("previous").onclick = () => hit(-1);
$("next").onclick = () => hit(1);
$("fit").onclick = fit;
$("unfold").onclick = () => level(true);
$("fold").onclick = () => level(false);
if (!G.groups.length) $("unfold").hidden = $("fold").hidden = true;
function view(which) {
  $("optimized").checked = optimized = which;
  homes = which ? G.optimized : G.written;
  arrange(chosen);
  if (typeof chosen === "number" && chosen >= 0) choose(leader(chosen)); else choose(chosen);
}
$("optimized").onchange = e => view(e.target.checked);
view(G.opensOptimized);
start();
// page.html#7 opens at node 7
if (/^#\d+$/.test(location.hash)) go(Number(location.hash.slice(1)));
draw();
document.body.dataset.ready = Math.round(performance.now());
