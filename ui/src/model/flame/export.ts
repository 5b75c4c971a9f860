// Trees in forms that other tools open. All pure.
import { path, type Symbols, type Tree } from './tree.ts'

/** Lines of frames joined with ";", a blank and the count, as flame graph tools read them. Of a comparison the second count follows. */
export function folded(t: Tree, s: Symbols): string {
  // A name must not end a frame or a line.
  const clean = (i: number) => s.name(t.name[i]!).replace(/[;\n\r]/g, ',')
  const lines: string[] = []
  for (let i = 1; i < t.name.length; i++) {
    if (t.self.some((x) => x[i] !== 0)) lines.push(`${path(t, i).map(clean).join(';')} ${t.self.map((x) => x[i]).join(' ')}`)
  }
  return lines.sort().join('\n') + '\n'
}

/** speedscope's file format: a sampled profile per side. */
export function speedscope(t: Tree, s: Symbols, title: string, units: readonly number[], sides: readonly string[]): string {
  const used = [...new Set(t.name.slice(1))]
  const index = new Map(used.map((n, i) => [n, i]))
  const profiles = t.self.map((self, side) => {
    const samples: number[][] = []
    const weights: number[] = []
    let end = 0
    for (let i = 1; i < self.length; i++) {
      if (self[i] === 0) continue
      const w = self[i]! * units[side]!
      samples.push(path(t, i).map((f) => index.get(t.name[f]!)!))
      weights.push(w)
      end += w
    }
    return { type: 'sampled', name: sides[side] ?? title, unit: 'seconds', startValue: 0, endValue: end, samples, weights }
  })
  return JSON.stringify({
    $schema: 'https://www.speedscope.app/file-format-schema.json', name: title, exporter: 'kubedyno',
    shared: { frames: used.map((n) => ({ name: s.name(n) })) }, profiles, activeProfileIndex: 0,
  })
}

/** A protocol buffer, as far as pprof's profile.proto needs it. */
class Message {
  readonly #bytes: number[] = []
  varint(x: number): void {
    // Above 2^31 shifts would cut; nanoseconds are.
    while (x >= 0x80) {
      this.#bytes.push((x % 0x80) | 0x80)
      x = Math.floor(x / 0x80)
    }
    this.#bytes.push(x)
  }
  number(field: number, x: number): void {
    if (x === 0) return
    this.varint(field << 3)
    this.varint(x)
  }
  bytes(field: number, b: Iterable<number> & { length: number }): void {
    this.varint((field << 3) | 2)
    this.varint(b.length)
    for (const x of b) this.#bytes.push(x)
  }
  packed(field: number, xs: readonly number[]): void {
    const m = new Message()
    for (const x of xs) m.varint(x)
    this.bytes(field, m.done())
  }
  done(): Uint8Array { return Uint8Array.from(this.#bytes) }
}

/**
 * One side as pprof's profile.proto, not yet compressed. Values are counts of
 * samples and nanoseconds of CPU; unit is the seconds that a weight of 1 stands for.
 */
export function pprof(t: Tree, s: Symbols, side: number, unit: number, seconds: number): Uint8Array {
  const strings = new Map<string, number>([['', 0]])
  const text = (x: string): number => {
    let i = strings.get(x)
    if (i === undefined) strings.set(x, i = strings.size)
    return i
  }
  const out = new Message()
  const type = (field: number, kind: string, of: string) => {
    const m = new Message()
    m.number(1, text(kind))
    m.number(2, text(of))
    out.bytes(field, m.done())
  }
  type(1, 'samples', 'count')
  type(1, 'cpu', 'nanoseconds')
  const nanos = (n: number) => Math.round(n * unit * 1e9)
  const self = t.self[side]!
  const location = new Map<number, number>()
  const place = (name: number): number => {
    let id = location.get(name)
    if (id === undefined) location.set(name, id = location.size + 1)
    return id
  }
  for (let i = 1; i < self.length; i++) {
    if (self[i] === 0) continue
    const m = new Message()
    m.packed(1, path(t, i).reverse().map((f) => place(t.name[f]!)))
    m.packed(2, [self[i]!, nanos(self[i]!)])
    out.bytes(2, m.done())
  }
  for (const [name, id] of location) {
    const line = new Message()
    line.number(1, id)
    const l = new Message()
    l.number(1, id)
    l.bytes(4, line.done())
    out.bytes(4, l.done())
    const f = new Message()
    f.number(1, id)
    f.number(2, text(s.name(name)))
    f.number(3, text(s.name(name)))
    out.bytes(5, f.done())
  }
  type(11, 'cpu', 'nanoseconds')
  out.number(10, Math.round(seconds * 1e9))
  out.number(12, nanos(1))
  const utf8 = new TextEncoder()
  for (const x of strings.keys()) out.bytes(6, utf8.encode(x))
  return out.done()
}

export interface SvgBox { x: number; w: number; row: number; label: string; title: string; fill: string; ink: string }

/** The picture as it stands, to be put into a document: boxes with titles, no script. */
export function svg(boxes: readonly SvgBox[], width: number, rows: number, rowHeight: number, title: string, paper: string, ink: string): string {
  const h = rows * rowHeight + 34
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${h}" viewBox="0 0 ${width} ${h}" font-family="system-ui, sans-serif" font-size="11">`,
    `<title>${escape(title)}</title><rect width="100%" height="100%" fill="${paper}"/>`,
    `<text x="4" y="18" font-size="13" fill="${ink}">${escape(title)}</text>`,
  ]
  for (const b of boxes) {
    const y = 28 + b.row * rowHeight
    const room = Math.floor((b.w - 6) / 6.2)
    const label = room < 3 ? '' : b.label.length > room ? b.label.slice(0, room - 1) + '…' : b.label
    out.push(`<g><title>${escape(b.title)}</title><rect x="${b.x.toFixed(2)}" y="${y}" width="${Math.max(0.3, b.w - 0.5).toFixed(2)}" height="${rowHeight - 1}" fill="${b.fill}"/>`
      + (label ? `<text x="${(b.x + 3).toFixed(2)}" y="${y + rowHeight - 6}" fill="${b.ink}">${escape(label)}</text>` : '') + '</g>')
  }
  return out.join('\n') + '\n</svg>\n'
}

/** Text for XML: nothing of it is markup, and characters that XML has not are shown as such. */
export const escape = (s: string): string =>
  s.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd')
    .replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)
