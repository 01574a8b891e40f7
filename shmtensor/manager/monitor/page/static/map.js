// The map of the memory: each segment is a band of cells, each cell some bytes of it.
"use strict";

const ROW = 6; // words of a block: offset / 64, owner << 8 | kind, size (low, high), since, holds
const KIND_CLIENT = 1;
const KIND_NAME = 4;
const CELLS = [8, 6, 5, 4, 3]; // device pixels; the largest with which everything is shown in cells of UNIT bytes
const UNIT = 64;
const LABEL = 150; // CSS pixels at the left
const HEIGHT = 460; // CSS pixels, unless there are very many segments
const FREE = 0xff3f362f; // reserved, and no block lives there; colours are 0xAABBGGRR
const EDGE = 0xff1c1714; // the last cell of a larger block
const FRESH_SECONDS = 2;
const EMPTY = new Uint32Array(0);

// The colours of an owner: for a holder `owner << 8 | kind`, in two shades for neighbours.
const palette = new Map();
function hue(owner) {
  return (owner * 137.508 + 205) % 360;
}
function css(holder) {
  const kind = holder & 0xff;
  return kind === KIND_CLIENT ? `hsl(${hue(holder >>> 8).toFixed(0)} 62% 56%)` : kind === 3 ? "#f2b544" : "#f7e08a";
}
function word(red, green, blue) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}
function shades(holder) {
  let found = palette.get(holder);
  if (found === undefined) {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = css(holder);
    const hex = probe.fillStyle;
    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const mixed = (share, to) => word(...parts.map((part) => Math.round(part * (1 - share) + to * share)));
    found = [word(...parts), mixed(0.24, 0), mixed(0.4, 255), mixed(0.72, 28)]; // two shades, fresh, dimmed
    palette.set(holder, found);
  }
  return found;
}

class MemoryMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.cells = document.createElement("canvas");
    this.blocks = new Map(); // by segment: words
    this.extents = new Map(); // by segment: bytes that are shown
    this.bands = [];
    this.chosen = null; // an owner, whose blocks alone are bright
    this.drawn = 0; // blocks
  }

  clear() {
    this.blocks.clear();
    this.extents.clear();
  }

  // Put rows from block `first` on, of a piece of a frame.
  put(segment, first, bytes) {
    const rows = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >>> 2);
    let words = this.blocks.get(segment) || EMPTY;
    const end = first * ROW + rows.length;
    if (end > words.length) {
      const longer = new Uint32Array(Math.max(end, Math.min(2 * words.length, end + 1200000)));
      longer.set(words);
      words = longer;
      this.blocks.set(segment, words);
    }
    words.set(rows, first * ROW);
  }

  remove(segment) {
    this.blocks.delete(segment);
    this.extents.delete(segment);
  }

  // The bytes of a segment from its beginning that are worth showing. Shrinks only by much, so that the map stays calm.
  extent(id, row) {
    const words = this.blocks.get(id) || EMPTY;
    let end = Math.min(row.reserved, row.payload);
    for (let at = 0; at < words.length; at += ROW) {
      if (words[at + 5]) {
        const last = words[at] * 64 + words[at + 2] + words[at + 3] * 4294967296;
        if (last > end) end = last;
      }
    }
    if (row.ring !== null || row.dedicated) end = Math.min(end, Math.max(row.reserved, 4096));
    const wanted = Math.max(end, 4096);
    const before = this.extents.get(id) || 0;
    const extent = wanted > before || wanted < before / 4 ? wanted : before;
    this.extents.set(id, extent);
    return extent;
  }

  layout(segments, columns, rows) {
    const bands = [...segments].map(([id, row]) => ({ id, row, extent: this.extent(id, row) }));
    let unit = UNIT;
    for (; ; unit = Math.ceil((unit * 1.15) / 64) * 64) {
      let at = 0;
      for (const band of bands) {
        band.from = at;
        band.rows = Math.max(bands.length > 40 ? 1 : 5, Math.ceil(band.extent / unit / columns));
        at += band.rows + (bands.length > 40 ? 1 : 3);
      }
      if (at <= rows || unit > 1e15) return { bands, unit, used: Math.max(at, 1) };
      if (bands.every((band) => band.extent <= unit * columns)) return { bands, unit, used: at }; // as many as there are
    }
  }

  draw(segments, now) {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * ratio);
    let found = null;
    let columns = 1;
    let cell = 0;
    for (cell of CELLS) {
      columns = Math.max(1, Math.floor((width - LABEL * ratio) / cell));
      found = this.layout(segments, columns, Math.floor((HEIGHT * ratio) / cell));
      if (found.unit === UNIT && found.used * cell <= HEIGHT * ratio) break;
    }
    const { bands, unit, used } = found;
    const height = Math.max(Math.round(HEIGHT * ratio), used * cell);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.height = `${height / ratio}px`;
    }
    if (this.cells.width !== columns || this.cells.height !== used) {
      this.cells.width = columns;
      this.cells.height = used;
      this.image = this.cells.getContext("2d").createImageData(columns, used);
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    pixels.fill(0);
    this.drawn = 0;
    for (const band of bands) this.paint(band, pixels, columns, unit, now);
    this.cells.getContext("2d").putImageData(this.image, 0, 0);
    const context = this.context;
    context.clearRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.cells, LABEL * ratio, 0, columns * cell, used * cell);
    this.bands = bands;
    this.grid = { ratio, columns, unit, cell };
    this.labels(bands, ratio, cell);
    return unit;
  }

  paint(band, pixels, columns, unit, now) {
    const words = this.blocks.get(band.id) || EMPTY;
    const base = band.from * columns;
    const limit = base + band.rows * columns;
    const reserved = Math.min(band.row.reserved, band.extent);
    pixels.fill(FREE, base, Math.min(limit, base + Math.ceil(reserved / unit)));
    const ring = band.row.ring !== null || band.row.dedicated;
    let holder = -1;
    let colours = null;
    let shade = 0;
    for (let at = 0; at < words.length; at += ROW) {
      if (words[at + 5] === 0) continue;
      this.drawn++;
      if (words[at + 1] !== holder) {
        holder = words[at + 1];
        colours = shades(holder);
      }
      const offset = words[at] * 64;
      const size = words[at + 2] + words[at + 3] * 4294967296;
      const from = base + Math.floor(offset / unit);
      const to = Math.min(limit, base + Math.ceil((offset + (ring ? Math.min(size, band.extent) : size)) / unit));
      shade ^= 1;
      let colour = now - words[at + 4] < FRESH_SECONDS ? colours[2] : colours[shade];
      if (this.chosen !== null && this.chosen !== holder >>> 8) colour = colours[3];
      if (to - from < 8) for (let cell = from; cell < to; cell++) pixels[cell] = colour;
      else pixels.fill(colour, from, to);
      if (to - from > 3) pixels[to - 1] = EDGE;
    }
  }

  labels(bands, ratio, cell) {
    const context = this.context;
    context.textBaseline = "top";
    for (const band of bands) {
      const top = band.from * cell;
      const lines = this.describe(band);
      const room = Math.floor((band.rows + 2) * cell / (13 * ratio));
      lines.slice(0, Math.max(bands.length > 40 ? 0 : 1, room)).forEach((line, index) => {
        context.font = `${11 * ratio}px system-ui, sans-serif`;
        context.fillStyle = index ? "#8b96a5" : "#dde3ea";
        context.fillText(line, 0, top + index * 13 * ratio, (LABEL - 8) * ratio);
      });
    }
  }

  // The block at a place of the canvas (CSS pixels), or the segment if no block is there; null: neither.
  find(x, y) {
    if (!this.grid) return null;
    const { ratio, columns, unit, cell } = this.grid;
    const column = Math.floor((x - LABEL) * ratio / cell);
    const row = Math.floor(y * ratio / cell);
    const band = this.bands.find((one) => row >= one.from && row < one.from + one.rows);
    if (!band || column >= columns) return null;
    const at = ((row - band.from) * columns + column) * unit;
    const words = this.blocks.get(band.id) || EMPTY;
    if (column >= 0) {
      for (let index = 0; index < words.length; index += ROW) {
        const offset = words[index] * 64;
        const size = words[index + 2] + words[index + 3] * 4294967296;
        if (words[index + 5] && offset < at + unit && offset + size > at) {
          const [, holder, , , since, holds] = words.subarray(index, index + ROW);
          return { band, block: { index: index / ROW, offset, size, holder, since, holds } };
        }
      }
    }
    return { band, block: null };
  }
}
