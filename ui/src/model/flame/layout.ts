// Where frames are drawn. All pure.
import { callees, path, type Callees, type Tree } from './tree.ts'

/** The boxes of one row, left to right. A frame of -1 stands for several that are too narrow. */
export interface Row {
  x: number[]
  w: number[]
  frame: number[]
}

/** Below this many pixels frames are drawn as one. */
export const narrow = 2

/** Callees of each frame, the heaviest first, so that a row ends with what is too narrow. */
export function order(t: Tree, weight: Float64Array): Callees {
  return callees(t, (a, b) => weight[b]! - weight[a]! || a - b)
}

/**
 * The boxes of all rows for a width in pixels. From the top to the zoomed frame
 * each has the whole width. The work is bounded by the pixels, not the frames:
 * where a callee is too narrow, so are all after it.
 */
export function layout(t: Tree, c: Callees, weight: Float64Array, zoom: number, width: number): Row[] {
  const rows: Row[] = []
  const put = (depth: number, x: number, w: number, frame: number): void => {
    while (rows.length <= depth) rows.push({ x: [], w: [], frame: [] })
    const r = rows[depth]!
    r.x.push(x)
    r.w.push(w)
    r.frame.push(frame)
  }
  const above = [0, ...path(t, zoom)]
  above.forEach((f, depth) => put(depth, 0, width, f))
  const whole = weight[zoom]!
  if (!(whole > 0)) return rows
  const perWeight = width / whole
  let level = [{ frame: zoom, x: 0 }]
  for (let depth = above.length; level.length > 0; depth++) {
    const next: typeof level = []
    for (const { frame, x } of level) {
      let at = x
      for (let k = c.start[frame]!; k < c.start[frame + 1]!; k++) {
        const f = c.list[k]!
        const w = weight[f]! * perWeight
        if (w < narrow) {
          let rest = w
          for (let j = k + 1; j < c.start[frame + 1]!; j++) rest += weight[c.list[j]!]! * perWeight
          if (rest >= narrow / 3) put(depth, at, rest, -1)
          break
        }
        put(depth, at, w, f)
        next.push({ frame: f, x: at })
        at += w
      }
    }
    level = next
  }
  return rows
}

/** The box of a row that holds x, or -1. */
export function hit(r: Row | undefined, x: number): number {
  if (!r) return -1
  let lo = 0
  let hi = r.x.length
  while (lo < hi) {
    const mid = (lo + hi) >> 1
    if (r.x[mid]! <= x) lo = mid + 1
    else hi = mid
  }
  const i = lo - 1
  return i >= 0 && x < r.x[i]! + r.w[i]! ? i : -1
}

/** How deep a frame stands. */
export function depth(t: Tree, frame: number): number {
  let d = 0
  for (let i = frame; i > 0; i = t.parent[i]!) d++
  return d
}

/** The frame that must be zoomed to for a frame to be at least so wide: itself or the nearest caller from which it is. */
export function zoomFor(t: Tree, weight: Float64Array, frame: number, width: number, least: number): number {
  for (const f of [0, ...path(t, frame)]) {
    if ((weight[frame]! / weight[f]!) * width >= least) return f
  }
  return frame
}

/** Where the keyboard goes from a frame. */
export function neighbour(t: Tree, c: Callees, frame: number, to: 'caller' | 'callee' | 'left' | 'right'): number {
  if (to === 'caller') return Math.max(0, t.parent[frame]!)
  if (to === 'callee') return c.start[frame]! < c.start[frame + 1]! ? c.list[c.start[frame]!]! : frame
  if (frame === 0) return 0
  const p = t.parent[frame]!
  const siblings = c.list.subarray(c.start[p], c.start[p + 1])
  return siblings[siblings.indexOf(frame) + (to === 'left' ? -1 : 1)] ?? frame
}
