// The call graph of the heaviest functions: who calls whom, laid out in layers.
// All pure.
import type { Tree } from './tree.ts'

export interface Node {
  name: number
  self: number
  total: number
  layer: number
  /** From left to right within the layer, 0 and up. */
  place: number
}

export interface Edge {
  from: number // index of nodes
  to: number
  weight: number
  /** Functions between the two are not shown. */
  indirect: boolean
}

export interface Graph { nodes: Node[]; edges: Edge[]; layers: number; widest: number }

/**
 * The graph of the most heavy functions by total weight of a side. A function
 * that calls itself counts once, an edge carries what flows from caller to
 * callee, past functions that are not shown; what is lighter than least of the
 * whole is left out.
 */
export function callGraph(t: Tree, side: number, most: number, least = 0.005): Graph {
  const self = t.self[side]!
  const total = t.total[side]!
  const whole = total[0]!
  const selfBy = new Map<number, number>()
  const totalBy = new Map<number, number>()
  // A frame counts unless its function already stands above it.
  for (let i = 1; i < t.name.length; i++) {
    const name = t.name[i]!
    if (self[i]) selfBy.set(name, (selfBy.get(name) ?? 0) + self[i]!)
    let above = t.parent[i]!
    while (above > 0 && t.name[above] !== name) above = t.parent[above]!
    if (above <= 0) totalBy.set(name, (totalBy.get(name) ?? 0) + total[i]!)
  }
  const chosen = [...totalBy].filter(([, w]) => w >= least * whole && w > 0).sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, most)
  const index = new Map(chosen.map(([name], i) => [name, i]))
  const nodes = chosen.map(([name, w]): Node => ({ name, self: selfBy.get(name) ?? 0, total: w, layer: 0, place: 0 }))
  const edges = new Map<string, Edge>()
  // Frames stand behind their callers: what was decided above is known below.
  const nearest = new Int32Array(t.name.length).fill(-1)
  for (let i = 1; i < t.name.length; i++) {
    const to = index.get(t.name[i]!)
    const p = t.parent[i]!
    const from = p > 0 ? nearest[p]! : -1
    nearest[i] = to ?? from
    if (to === undefined || from < 0 || from === to || total[i] === 0) continue
    let above = p // the same call further out holds this one's weight already
    while (above > 0 && !(t.name[above] === t.name[i] && nearest[t.parent[above]!] === from)) above = t.parent[above]!
    if (above > 0) continue
    const key = `${from} ${to}`
    const e = edges.get(key) ?? { from, to, weight: 0, indirect: true }
    e.weight += total[i]!
    if (t.name[p] === nodes[from]!.name) e.indirect = false
    edges.set(key, e)
  }
  const list = [...edges.values()].filter((e) => e.weight >= (least / 2) * whole).sort((a, b) => b.weight - a.weight || a.from - b.from || a.to - b.to)
  const g = { nodes, edges: list, layers: 0, widest: 0 }
  lay(g)
  return g
}

/** Gives nodes their layers, callers above, and orders each so that edges cross little. */
function lay(g: Graph): void {
  // Heavy edges first; one that would close a circle does not count.
  const down: number[][] = g.nodes.map(() => [])
  const reaches = (a: number, b: number, seen = new Set<number>()): boolean => a === b || (!seen.has(a) && (seen.add(a), down[a]!.some((x) => reaches(x, b, seen))))
  for (const e of g.edges) if (!reaches(e.to, e.from)) down[e.from]!.push(e.to)
  const deep = (i: number, layer: number): void => {
    if (g.nodes[i]!.layer > layer || (layer > 0 && g.nodes[i]!.layer === layer)) return
    g.nodes[i]!.layer = layer
    for (const x of down[i]!) deep(x, layer + 1)
  }
  g.nodes.forEach((_, i) => deep(i, 0))
  g.layers = 1 + Math.max(-1, ...g.nodes.map((n) => n.layer))
  const layers = Array.from({ length: g.layers }, (_, l) => g.nodes.map((_n, i) => i).filter((i) => g.nodes[i]!.layer === l))
  const put = (layer: readonly number[]) => layer.forEach((i, place) => { g.nodes[i]!.place = place })
  layers.forEach(put)
  for (let sweep = 0; sweep < 6; sweep++) {
    for (const layer of sweep % 2 === 0 ? layers : layers.toReversed()) {
      const centre = new Map(layer.map((i) => {
        let sum = 0
        let weight = 0
        for (const e of g.edges) {
          const other = e.from === i ? e.to : e.to === i ? e.from : -1
          if (other < 0) continue
          sum += e.weight * (g.nodes[other]!.place / Math.max(1, layers[g.nodes[other]!.layer]!.length))
          weight += e.weight
        }
        return [i, weight > 0 ? sum / weight : g.nodes[i]!.place / Math.max(1, layer.length)]
      }))
      layer.sort((a, b) => centre.get(a)! - centre.get(b)! || a - b)
      put(layer)
    }
  }
  g.widest = Math.max(0, ...layers.map((l) => l.length))
}
