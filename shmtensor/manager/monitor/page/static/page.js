// The page of `shmtensor-manager page`: applies the frames of the stream (picture.py) and draws what they say.
"use strict";

const token = new URLSearchParams(location.search).get("token");
const FIRST_RING = 8192;
const SHOWN_ROWS = 14;
const POINTS = 3600;
const RINGS = ["ring", "SimpleQueue", "Queue", "JoinableQueue", "Broadcast", "Store"]; // by kind
const STORE = 5;
const NAMES = ["manager", "clients", "segments", "rings"];
const tables = Object.fromEntries(NAMES.map((name) => [name, new Map()]));
const map = new MemoryMap(byId("map"));
const timeline = [[], [], [], [], []]; // t, live, reserved, blocks, messages
let stream = null;
let replay = null; // {start, seconds, speed} of a recording
let paused = false;
let now = 0; // of the group's clock
let moment = 0; // seconds since the epoch
let pending = false;
const drawing = { frames: 0, draws: 0, milliseconds: 0 }; // for tests and measurements
window.shmtensor = { drawing, map, tables, timeline };

function byId(id) {
  return document.getElementById(id);
}

// ------------------------------------------------------------------------------------------------------------- formats

function bytes(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${unit === "B" ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}
function count(value) {
  return value.toLocaleString("en");
}
function duration(seconds) {
  if (seconds < 60) return `${Math.max(0, seconds).toFixed(0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86400 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}
function messages() {
  const queues = [...tables.rings.values()].filter((row) => row.kind !== STORE);
  return queues.reduce((all, row) => all + row.messages, 0);
}
function nameOfRing(number) {
  const row = tables.rings.get(String(number));
  return `${(row && RINGS[row.kind]) || "ring"} ${number}`;
}
function nameOf(owner) {
  if (owner === null) return "nobody";
  if (owner >= FIRST_RING) return `in ${nameOfRing(owner)}`;
  if (owner === 0) return "in flight";
  const row = tables.clients.get(String(owner));
  return row ? (row.state === "client" ? `pid ${row.pid}` : `${row.state} ${row.pid || owner}`) : `slot ${owner}`;
}
// A command line without the folders of the program and of its script.
function shortened(command) {
  return command.replace(/^\S*\//, "").replace(/^(\S+ )\/\S*\//, "$1");
}
function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made[key] = value;
  return made;
}

map.describe = ({ id, row }) => {
  const kind = row.ring !== null ? nameOfRing(row.ring) : row.dedicated ? "dedicated" : "arena";
  const owner = row.ring !== null ? "" : ` of ${nameOf(row.owner)}`;
  return [`${id}: ${kind}${owner}`, `${bytes(row.live)} of ${bytes(row.reserved)}`, `${count(row.blocks)} blocks`];
};

// -------------------------------------------------------------------------------------------------------------- frames

function decode(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const made = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) made[at] = raw.charCodeAt(at);
  return made;
}

function take(frame) {
  if (frame.reset) {
    for (const name of NAMES) tables[name].clear();
    map.clear();
    timeline.forEach((column) => (column.length = 0));
    for (const point of frame.history || []) point.forEach((value, at) => timeline[at].push(value));
    setReplay(frame.replay || null);
  }
  for (const name of NAMES) {
    for (const [key, row] of Object.entries(frame[name] || {})) {
      if (row !== null) tables[name].set(key, row);
      else {
        tables[name].delete(key);
        if (name === "segments") map.remove(key);
      }
    }
  }
  for (const [segment, first, text] of frame.blocks || []) map.put(segment, first, decode(text));
  now = frame.now;
  moment = frame.t;
  if (frame.end) ended();
  if (!replay) addPoint();
  drawing.frames++;
  if (!pending) {
    pending = true;
    requestAnimationFrame(draw);
  }
}

function sum(rows, field) {
  let total = 0;
  for (const row of rows.values()) total += row[field];
  return total;
}

function addPoint() {
  const last = timeline[0].length ? timeline[0][timeline[0].length - 1] : 0;
  if (moment - last < 0.25) return;
  const point = [moment, sum(tables.segments, "live"), sum(tables.segments, "reserved"),
    sum(tables.segments, "blocks"), messages()];
  point.forEach((value, at) => timeline[at].push(value));
  if (timeline[0].length > 4 * POINTS) timeline.forEach((column) => column.splice(0, POINTS));
}

// ------------------------------------------------------------------------------------------------------------- drawing

let chartsAt = 0;
function draw() {
  pending = false;
  const begun = performance.now();
  const order = [...tables.segments].sort((one, other) => one[0] - other[0]);
  const unit = map.draw(order, now);
  byId("scale").textContent = `${bytes(unit)} a cell, ${count(map.drawn)} blocks`;
  if (begun - chartsAt > 250) {
    chartsAt = begun;
    drawFigures();
    drawHolders();
    drawQueues();
    charts.forEach((chart) => chart.setData([timeline[0], ...chart.columns.map((column) => timeline[column])]));
  } else {
    later();
  }
  drawing.draws++;
  drawing.milliseconds += performance.now() - begun;
}

// Draw once more, so that what is drawn less often is not left behind the last frame.
let timer = 0;
function later() {
  if (!timer) timer = setTimeout(() => { timer = 0; if (!pending) { pending = true; requestAnimationFrame(draw); } }, 260);
}

function drawFigures() {
  const manager = tables.manager.get("manager") || {};
  const state = byId("state");
  if (replay || (stream && stream.readyState === EventSource.OPEN)) {
    state.className = manager.problem ? "gone" : replay ? "replay" : "live";
    state.textContent = manager.problem ? "no manager" : replay ? "recording" : "live";
  }
  byId("manager").textContent = manager.problem || `${manager.address || ""}  pid ${manager.pid || "?"}`;
  const limit = manager.max_bytes ? ` of ${bytes(manager.max_bytes)}` : "";
  const figures = [
    ["live", bytes(sum(tables.segments, "live"))],
    ["reserved", bytes(sum(tables.segments, "reserved")) + limit],
    ["blocks", count(sum(tables.segments, "blocks"))],
    ["segments", count(tables.segments.size)],
    ["processes", count([...tables.clients.values()].filter((row) => row.state === "client").length)],
    ["messages in queues", count(messages())],
    ["names", count(manager.names || 0)],
    ["manager's requests", count(manager.requests || 0)],
    ["manager's age", duration(manager.uptime_seconds || 0)],
  ];
  byId("figures").replaceChildren(...figures.map(([name, value]) => {
    const made = element("div");
    made.append(element("dt", name), element("dd", value));
    return made;
  }));
}

function header(columns, classes = []) {
  const made = element("tr");
  made.append(...columns.map((text, at) => element("th", text, { className: classes[at] || "" })));
  return made;
}
function columnsOf(classes) {
  const made = element("colgroup");
  made.append(...classes.map((name) => element("col", undefined, { className: name })));
  return made;
}

function drawHolders() {
  const sums = new Map();
  for (const row of tables.segments.values()) {
    for (const [owner, kind, blocks, size, since] of row.holders) {
      const key = owner * 256 + kind;
      const found = sums.get(key) || { owner, kind, blocks: 0, size: 0, since };
      found.blocks += blocks;
      found.size += size;
      found.since = Math.min(found.since, since);
      sums.set(key, found);
    }
  }
  const holders = [...sums.values()].sort((one, other) => other.size - one.size);
  const rows = holders.slice(0, SHOWN_ROWS).map((holder) => {
    const made = element("tr", undefined, { className: "owner" });
    if (map.chosen === holder.owner) made.classList.add("chosen");
    const who = element("td");
    const swatch = element("span", undefined, { className: "swatch" });
    swatch.style.background = css(holder.owner * 256 + holder.kind);
    const sent = holder.kind === KIND_CLIENT || holder.owner >= FIRST_RING ? "" : " (sent)";
    who.append(swatch, holder.kind === KIND_NAME ? "the group, by its name" : nameOf(holder.owner) + sent);
    const command = (tables.clients.get(String(holder.owner)) || {}).command || "";
    const cells = [count(holder.blocks), bytes(holder.size), duration(now - holder.since)];
    made.append(who, element("td", shortened(command), { title: command }));
    made.append(...cells.map((text) => element("td", text, { className: "number" })));
    made.onmousedown = () => {
      map.chosen = map.chosen === holder.owner ? null : holder.owner;
      chartsAt = 0;
      draw();
    };
    return made;
  });
  if (holders.length > SHOWN_ROWS) rows.push(element("tr", `and ${holders.length - SHOWN_ROWS} more`));
  byId("holders").replaceChildren(columnsOf(["who", "command", "count", "size", "age"]),
    header(["held by", "command", "blocks", "bytes", "oldest"], ["", "", "number", "number", "number"]), ...rows);
}

function drawQueues() {
  const rings = [...tables.rings].sort((one, other) => other[1].messages - one[1].messages || one[0] - other[0]);
  const rows = rings.slice(0, SHOWN_ROWS).map(([number, ring]) => {
    const made = element("tr");
    const isStore = ring.kind === STORE;
    const full = isStore ? ring.max_bytes || Math.max(ring.bytes, 1) : ring.max_messages || Math.max(ring.peak_messages, 1);
    const inside = isStore ? ring.bytes : ring.messages;
    const depth = element("canvas", undefined, { className: "depth", width: 200, height: 9 });
    const context = depth.getContext("2d");
    context.fillStyle = ring.max_messages && ring.messages >= ring.max_messages ? "#ef6f6c" : "#f2b544";
    context.fillRect(0, 0, (200 * Math.min(inside, full)) / full, 9);
    const bar = element("td");
    bar.append(depth);
    const most = ring.max_messages ? ` of ${count(ring.max_messages)}` : "";
    const peak = isStore ? "" : count(ring.peak_messages);
    const cells = [count(ring.messages) + most, peak, bytes(ring.bytes)];
    made.append(element("td", nameOfRing(number)), bar);
    made.append(...cells.map((text) => element("td", text, { className: "number" })));
    return made;
  });
  if (rings.length > SHOWN_ROWS) rows.push(element("tr", `and ${rings.length - SHOWN_ROWS} more`));
  byId("queues").replaceChildren(columnsOf(["ring", "bar", "count", "age", "size"]),
    header(["", "depth", "inside", "peak", "bytes"], ["", "", "number", "number", "number"]), ...rows);
}

function chart(place, columns, series, format, incrs) {
  const grid = { stroke: "#2a313b", width: 1 };
  const axis = { stroke: "#8b96a5", grid, ticks: grid, font: "11px system-ui" };
  const cursorLine = (made) => {
    if (!replay) return;
    const x = made.valToPos(moment, "x", true);
    made.ctx.fillStyle = "#dde3ea";
    made.ctx.fillRect(x, made.bbox.top, 2, made.bbox.height);
  };
  const made = new uPlot({
    width: place.clientWidth,
    height: 170,
    cursor: { sync: { key: "page" }, drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] } },
    axes: [axis, { ...axis, size: 74, incrs, values: (_, values) => values.map(format) }],
    series: [{}, ...series.map((one) => ({ width: 1.5, points: { show: false }, value: (_, value) => value === null ? "" : format(value), ...one }))],
    hooks: { draw: [cursorLine] },
  }, [[], ...columns.map(() => [])], place);
  made.columns = columns;
  made.over.addEventListener("mousedown", (event) => {
    if (replay) seek(made.posToVal(event.offsetX, "x") - replay.start);
  });
  return made;
}
const charts = [
  chart(byId("bytes"), [2, 1], [
    { label: "reserved", stroke: "#6f7b8a", fill: "#6f7b8a22" }, { label: "live", stroke: "#4aa8e8", fill: "#4aa8e833" }],
    bytes, Array.from({ length: 46 }, (_, power) => 2 ** power)),
  chart(byId("counts"), [3, 4], [
    { label: "blocks", stroke: "#58c27d" }, { label: "messages in queues", stroke: "#f2b544" }],
    (value) => (Number.isInteger(value) ? count(value) : "")),
];
window.addEventListener("resize", () => {
  charts.forEach((one) => one.setSize({ width: one.root.parentElement.clientWidth, height: 170 }));
  if (!pending) draw();
});

const tip = byId("tip");
byId("map").addEventListener("mouseleave", () => (tip.hidden = true));
byId("map").addEventListener("mousemove", (event) => {
  const found = map.find(event.offsetX, event.offsetY);
  tip.hidden = !found;
  if (!found) return;
  const lines = map.describe(found.band);
  if (found.block) {
    const { index, offset, size, holder, since, holds } = found.block;
    const others = holds > 1 ? ` and ${count(holds - 1)} more` : "";
    lines.push("", `block ${index}: ${bytes(size)} at ${count(offset)}`, `held by ${nameOf(holder >>> 8)}${others}`,
      `for ${duration(now - since)}`);
  }
  tip.textContent = lines.join("\n");
  tip.style.left = `${Math.min(event.offsetX + 26, byId("map").clientWidth - 200)}px`;
  tip.style.top = `${event.offsetY + 40}px`;
});

// -------------------------------------------------------------------------------------------------- stream and replays

function open(from = 0, speed = 1) {
  if (stream) stream.close();
  stream = new EventSource(`events?token=${encodeURIComponent(token)}&from=${from}&speed=${speed}`);
  stream.onmessage = (event) => {
    take(JSON.parse(event.data));
    if (replay && paused) stream.close(); // one picture is enough
  };
  stream.onerror = () => {
    byId("state").className = "gone";
    byId("state").textContent = "disconnected";
  };
}

function setReplay(found) {
  replay = found;
  byId("replay").hidden = !replay;
  if (!replay) return;
  byId("position").max = replay.seconds;
  byId("play").textContent = paused ? "play" : "pause";
}
function ended() {
  stream.close();
  byId("play").textContent = "play again";
}
function seek(seconds) {
  open(Math.max(0, Math.min(seconds, replay.seconds)).toFixed(3), byId("speed").value);
}
byId("replay").onsubmit = () => false;
byId("position").onchange = () => seek(Number(byId("position").value));
byId("speed").onchange = () => seek(moment - replay.start);
byId("play").onclick = () => {
  const said = byId("play").textContent;
  paused = said === "pause";
  if (paused) {
    stream.close();
    byId("play").textContent = "play";
  } else {
    seek(said === "play" ? moment - replay.start : 0);
  }
};
setInterval(() => {
  if (!replay || byId("position").matches(":active")) return;
  byId("position").value = moment - replay.start;
  byId("clock").textContent = `${(moment - replay.start).toFixed(1)} of ${replay.seconds.toFixed(1)} s`;
}, 200);

open();
