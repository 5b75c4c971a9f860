// The call graph of the heaviest functions, callers above.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { SideFacts } from '../model/flame/diff.ts'
import { callGraph, type Node } from '../model/flame/graph.ts'
import type { Symbols, Tree } from '../model/flame/tree.ts'
import { num, percent, splitFunction } from '../model/format.ts'
import { inkOn } from '../model/colour.ts'

const box = { width: 204, height: 40, gapX: 18, gapY: 46 }

interface Props { tree: Tree; facts: SideFacts; symbols: Symbols; fill: (name: number) => string; onPick: (name: number) => void }

export function CallGraph({ tree, facts, symbols, fill, onPick }: Props) {
  const [most, setMost] = useState(30)
  const g = useMemo(() => callGraph(tree, tree.total.length - 1, most), [tree, most])
  const scroll = useRef<HTMLDivElement>(null)
  // What calls all others stands in the middle of the top.
  useLayoutEffect(() => {
    const e = scroll.current
    if (e) e.scrollLeft = (e.scrollWidth - e.clientWidth) / 2
  }, [g])
  if (g.nodes.length === 0) return <p class="note">No function is heavy enough for a graph.</p>
  const width = Math.max(1, g.widest) * (box.width + box.gapX) + box.gapX
  const height = g.layers * (box.height + box.gapY) - box.gapY + 16
  const inLayer = g.nodes.reduce<number[]>((all, n) => { all[n.layer] = (all[n.layer] ?? 0) + 1; return all }, [])
  const left = (n: Node) => box.gapX + (n.place + (g.widest - inLayer[n.layer]!) / 2) * (box.width + box.gapX)
  const top = (n: Node) => 8 + n.layer * (box.height + box.gapY)
  const part = (w: number) => percent(facts.total > 0 ? w / facts.total : 0)
  const shown = (n: Node) => cut(splitFunction(symbols.name(n.name))[1])
  const weights = (n: Node) => `${part(n.total)} (${num(n.total * facts.unit)} s), self ${part(n.self)}`
  const cut = (s: string) => (s.length > 25 ? `${s.slice(0, 24)}…` : s)
  return (
    <figure class="chart callgraph">
      <figcaption><span class="title">Call graph</span><span class="unit">the {g.nodes.length} heaviest functions, callers above; dashed past others <button type="button" onClick={() => setMost(most === 30 ? 60 : 30)}>{most === 30 ? 'more' : 'fewer'}</button></span></figcaption>
      <div class="scroll" ref={scroll} tabIndex={0} role="region" aria-label="call graph">
        <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="group" aria-label="call graph; the table holds the same functions">
          {g.edges.map((e, i) => {
            const [a, b] = [g.nodes[e.from]!, g.nodes[e.to]!]
            const [x1, y1, x2, y2] = [left(a) + box.width / 2, top(a) + (b.layer > a.layer ? box.height : 0), left(b) + box.width / 2, top(b) + (b.layer > a.layer ? 0 : box.height)]
            const bend = (y2 - y1) / 2
            return <path key={i} class={e.indirect ? 'edge indirect' : 'edge'} d={`M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`} stroke-width={Math.max(0.7, 9 * (e.weight / Math.max(1, facts.total)))}><title>{`${symbols.name(a.name)} → ${symbols.name(b.name)}: ${part(e.weight)}`}</title></path>
          })}
          {g.nodes.map((n) => {
            const colour = fill(n.name)
            return (
              <g key={n.name} class="node" tabIndex={0} role="button" onClick={() => onPick(n.name)}
                onKeyDown={(e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); onPick(n.name) } }}>
                <rect x={left(n)} y={top(n)} width={box.width} height={box.height} rx={3} fill={colour} />
                <text x={left(n) + 6} y={top(n) + 16} fill={inkOn(colour)}>{shown(n)}</text>
                <text x={left(n) + 6} y={top(n) + 32} fill={inkOn(colour)}>{weights(n)}</text>
              </g>
            )
          })}
        </svg>
      </div>
    </figure>
  )
}
