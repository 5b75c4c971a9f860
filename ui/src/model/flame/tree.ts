// Call stacks as trees of frames. All pure.
//
// A Source is what the file holds: frames and when or how often each was seen.
// fold makes of one or two of them the Tree that is drawn.
import type { Flame, Flames } from '../../recording.ts'

/** Function names of all rounds, each with the class of its work and what is known of it. */
export class Symbols {
  readonly names: string[] = []
  readonly classes: string[] = [] // of each name; empty: no function but a component or a thread
  readonly notes = new Map<number, string>()
  readonly #index = new Map<string, number>()

  add(name: string, cls: string): number {
    let i = this.#index.get(name)
    if (i === undefined) {
      i = this.names.length
      this.#index.set(name, i)
      this.names.push(name)
      this.classes.push(cls)
    }
    return i
  }

  find(name: string): number { return this.#index.get(name) ?? -1 }
  name(i: number): string { return i < 0 ? 'all' : this.names[i]! }
}

/** One set of stacks. Frame 0 stands above the outermost; a frame stands behind its caller. */
export interface Source {
  flame: Flame
  name: Int32Array // index of Symbols; -1 of frame 0
  parent: Int32Array // -1 of frame 0
  self: Float64Array // over all its time
  /** Of stacks: the innermost frame of each sample, interval by interval. */
  samples: Int32Array
  /** Where each interval begins in samples. */
  starts: Int32Array
}

export function decode(f: Flames, symbols: Symbols): Source[] {
  const ids = f.names.map((n, i) => symbols.add(n, f.classes[f.class[i]!] ?? ''))
  for (const n of f.notes) symbols.notes.set(ids[n.name]!, n.text)
  return f.trees.map((t) => decodeOne(t, ids))
}

function decodeOne(flame: Flame, ids: readonly number[]): Source {
  const n = flame.names.length
  const name = new Int32Array(n + 1)
  const parent = new Int32Array(n + 1)
  const self = new Float64Array(n + 1)
  name[0] = parent[0] = -1
  for (let i = 0; i < n; i++) {
    const d = flame.callers[i]!
    name[i + 1] = ids[flame.names[i]!]!
    parent[i + 1] = d === 0 ? 0 : i + 1 - d
    self[i + 1] = flame.self[i] ?? 0
  }
  const samples = new Int32Array(flame.samples.length)
  const starts = new Int32Array(flame.counts.length + 1)
  let k = 0
  flame.counts.forEach((count, interval) => {
    let at = 1 // frames of the file count from 0, ours from 1
    starts[interval] = k
    for (let j = 0; j < count; j++, k++) {
      at += flame.samples[k]!
      samples[k] = at
      self[at]!++
    }
  })
  starts[flame.counts.length] = k
  return { flame, name, parent, self, samples, starts }
}

export type Range = readonly [from: number, to: number]

/** The weight of each frame in a stretch of seconds, which is rounded to whole intervals. */
export function within(s: Source, range: Range | null): Float64Array {
  if (!range || s.flame.step === 0) return s.self
  const out = new Float64Array(s.self.length)
  const [a, b] = intervals(s, range)
  for (let k = s.starts[a]!; k < s.starts[b]!; k++) out[s.samples[k]!]!++
  return out
}

function intervals(s: Source, [from, to]: Range): [number, number] {
  const n = s.flame.counts.length
  const clamp = (t: number) => Math.max(0, Math.min(n, Math.round((t - s.flame.from) / s.flame.step)))
  return [clamp(from), clamp(to)]
}

/** The stretch that within really takes. */
export function rounded(s: Source, range: Range): Range {
  const [a, b] = intervals(s, range)
  return [s.flame.from + a * s.flame.step, s.flame.from + b * s.flame.step]
}

/** What one side of a picture is made of. */
export interface Side {
  source: Source
  self: Float64Array
  /** Only what runs below this outermost frame, which is left out itself. */
  below?: number
}

export interface Edits {
  /** Frames of these functions are left out; what they call stands below their callers. */
  hide: readonly number[]
  /** Only stacks with each of these functions. */
  focus: readonly number[]
  /** Only stacks with none of these. */
  drop: readonly number[]
  /** A function that calls itself becomes one frame. */
  recursion: boolean
}
export const noEdits: Edits = { hide: [], focus: [], drop: [], recursion: false }

/** Frames with weights of one side, or of two that are compared. A frame stands behind its caller; frame 0 is all. */
export interface Tree {
  name: Int32Array
  parent: Int32Array
  self: Float64Array[]
  total: Float64Array[]
}

class Builder {
  readonly name: number[] = [-1]
  readonly parent: number[] = [-1]
  readonly self: number[][]
  readonly #children = new Map<number, number>()
  readonly #names: number
  constructor(names: number, sides: number) {
    this.#names = names + 1
    this.self = Array.from({ length: sides }, () => [0])
  }

  child(parent: number, name: number): number {
    const key = parent * this.#names + name
    let i = this.#children.get(key)
    if (i === undefined) {
      i = this.name.length
      this.#children.set(key, i)
      this.name.push(name)
      this.parent.push(parent)
      for (const s of this.self) s.push(0)
    }
    return i
  }

  add(frame: number, side: number, weight: number): void { this.self[side]![frame]! += weight }

  tree(): Tree {
    const parent = Int32Array.from(this.parent)
    const self = this.self.map((s) => Float64Array.from(s))
    return { name: Int32Array.from(this.name), parent, self, total: self.map((s) => sums(parent, s)) }
  }
}

/** Adds to each frame what it calls. */
export function sums(parent: Int32Array, self: Float64Array): Float64Array {
  const total = Float64Array.from(self)
  for (let i = total.length - 1; i > 0; i--) total[parent[i]!]! += total[i]!
  return total
}

/** One picture of one or two sides. What weighs nothing is left out. */
export function fold(sides: readonly Side[], edits: Edits, names: number): Tree {
  const b = new Builder(names, sides.length)
  sides.forEach((s, side) => addSide(b, s, side, edits))
  return b.tree()
}

function addSide(b: Builder, s: Side, side: number, e: Edits): void {
  const { name, parent } = s.source
  const n = name.length
  const hide = new Set(e.hide)
  const drop = new Set(e.drop)
  const bit = new Map(e.focus.slice(0, 30).map((f, i) => [f, 1 << i]))
  const wanted = (1 << bit.size) - 1
  // What of each frame's weight stays. inside: below the outermost frame asked for.
  const inside = new Uint8Array(n)
  const gone = new Uint8Array(n)
  const found = new Int32Array(n)
  const kept = new Float64Array(n)
  inside[0] = s.below === undefined ? 1 : 0
  for (let i = 1; i < n; i++) {
    const p = parent[i]!
    inside[i] = inside[p]! | (p === 0 && name[i] === s.below ? 1 : 0)
    gone[i] = gone[p]! | (drop.has(name[i]!) ? 1 : 0)
    found[i] = found[p]! | (bit.get(name[i]!) ?? 0)
    if (inside[i] && !gone[i] && found[i] === wanted) kept[i] = s.self[i]!
  }
  const total = sums(parent, kept)
  const target = new Int32Array(n)
  for (let i = 1; i < n; i++) {
    if (total[i] === 0) continue
    const at = target[parent[i]!]!
    const skip = hide.has(name[i]!) || (parent[i] === 0 && name[i] === s.below)
      || (e.recursion && at > 0 && b.name[at] === name[i])
    target[i] = skip ? at : b.child(at, name[i]!)
    if (kept[i]) b.add(target[i]!, side, kept[i]!)
  }
}

/** Who calls a function and what it calls, over all its occurrences. A call of itself counts once. */
export function sandwich(t: Tree, f: number, names: number): { callers: Tree; callees: Tree } {
  const up = new Builder(names, t.self.length)
  const down = new Builder(names, t.self.length)
  const target = new Int32Array(t.name.length)
  for (let i = 1; i < t.name.length; i++) {
    const at = target[t.parent[i]!]!
    if (at > 0) target[i] = down.child(at, t.name[i]!)
    else if (t.name[i] === f) {
      target[i] = down.child(0, f)
      upward(t, i, up, t.total)
    }
    if (target[i]! > 0) t.self.forEach((s, side) => down.add(target[i]!, side, s[i]!))
  }
  return { callers: up.tree(), callees: down.tree() }
}

/** The tree from the inside out: the function that ran, then who called it. */
export function inverted(t: Tree, names: number): Tree {
  const b = new Builder(names, t.self.length)
  for (let i = 1; i < t.name.length; i++) if (t.self.some((s) => s[i] !== 0)) upward(t, i, b, t.self)
  return b.tree()
}

function upward(t: Tree, i: number, to: Builder, weights: readonly Float64Array[]): void {
  let at = 0
  for (let j = i; j > 0; j = t.parent[j]!) at = to.child(at, t.name[j]!)
  weights.forEach((w, side) => to.add(at, side, w[i]!))
}

/** A frame's stack, outermost first, frame 0 left out. */
export function path(t: Tree, frame: number): number[] {
  const out: number[] = []
  for (let i = frame; i > 0; i = t.parent[i]!) out.unshift(i)
  return out
}

export interface Found {
  hit: Uint8Array // of each frame
  frames: number
  /** The matches with no match above them. */
  outermost: number[]
  /** Weight of all stacks with a match, each counted once, by side. */
  weight: number[]
}

/** Looks for frames by their names. */
export function search(t: Tree, matches: (name: number) => boolean): Found {
  const hit = new Uint8Array(t.name.length)
  const inside = new Uint8Array(t.name.length)
  const weight = t.total.map(() => 0)
  const known = new Map<number, boolean>()
  const outermost: number[] = []
  let frames = 0
  for (let i = 1; i < t.name.length; i++) {
    const name = t.name[i]!
    let m = known.get(name)
    if (m === undefined) known.set(name, m = matches(name))
    inside[i] = inside[t.parent[i]!]!
    if (!m) continue
    hit[i] = 1
    frames++
    if (!inside[i]) {
      outermost.push(i)
      t.total.forEach((total, side) => { weight[side]! += total[i]! })
    }
    inside[i] = 1
  }
  return { hit, frames, outermost, weight }
}

const literally = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

/** The pattern that only this function matches. */
export const exactly = (name: string): string => `^${literally(name)}$`

/** What a reader typed: a regular expression if it is one, else the text itself; case counts only where it has capitals. */
export function pattern(text: string): RegExp | null {
  if (text.trim() === '') return null
  const flags = /[A-Z]/.test(text) ? '' : 'i'
  try {
    return new RegExp(text, flags)
  } catch {
    return new RegExp(literally(text), flags)
  }
}

/** One function over all its frames, by side. */
export interface FunctionRow {
  name: number
  self: number[]
  total: number[]
}

/** The functions of a tree. Where one calls itself its total counts once. */
export function functionRows(t: Tree): FunctionRow[] {
  const rows = new Map<number, FunctionRow>()
  const open = new Map<number, number>() // how many frames of a name are above
  const sides = t.self.length
  walk(t, (i) => {
    const name = t.name[i]!
    let r = rows.get(name)
    if (!r) rows.set(name, r = { name, self: new Array(sides).fill(0), total: new Array(sides).fill(0) })
    const above = open.get(name) ?? 0
    for (let s = 0; s < sides; s++) {
      r.self[s]! += t.self[s]![i]!
      if (above === 0) r.total[s]! += t.total[s]![i]!
    }
    open.set(name, above + 1)
  }, (i) => { const name = t.name[i]!; open.set(name, open.get(name)! - 1) })
  return [...rows.values()]
}

/** Where each frame's callees stand in one list. */
export interface Callees { start: Int32Array; list: Int32Array }

export function callees(t: Tree, order?: (a: number, b: number) => number): Callees {
  const n = t.name.length
  const start = new Int32Array(n + 1)
  for (let i = 1; i < n; i++) start[t.parent[i]! + 1]!++
  for (let i = 0; i < n; i++) start[i + 1]! += start[i]!
  const next = start.slice()
  const list = new Int32Array(Math.max(0, n - 1))
  for (let i = 1; i < n; i++) list[next[t.parent[i]!]!++] = i
  if (order) for (let i = 0; i < n; i++) if (start[i + 1]! - start[i]! > 1) list.subarray(start[i], start[i + 1]).sort(order)
  return { start, list }
}

/** Visits all frames but 0, each before and after what it calls. No recursion: stacks may be deep. */
function walk(t: Tree, enter: (i: number) => void, leave: (i: number) => void): void {
  const { start, list } = callees(t)
  const at = start.slice()
  const stack = [0]
  while (stack.length > 0) {
    const i = stack.at(-1)!
    if (at[i]! < start[i + 1]!) {
      const k = list[at[i]!++]!
      enter(k)
      stack.push(k)
    } else {
      stack.pop()
      if (i > 0) leave(i)
    }
  }
}
