// A chart: uPlot for the lines, our own legend, and a table for those who
// cannot see it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { extent, stack, table, type ChartData, type Extent, type Mark } from '../model/chart.ts'
import { apart, type Label } from '../model/labels.ts'
import { meanIn } from '../model/timeline.ts'
import type { Range } from '../model/flame/tree.ts'
import type { Colour } from '../model/colour.ts'
import { duration, num } from '../model/format.ts'
import { useDark } from './theme.ts'

interface Props {
  title: string
  data: ChartData
  /** Charts of one group move their cursors together. */
  group: string
  /** Shared with the same chart of other rounds; else the chart's own. */
  extent?: Extent | undefined
  height?: number
  note?: string
  /** Write each line's name at its end, where the eye is. */
  endLabels?: boolean
  /** The selected seconds. With onRange dragging selects, else it zooms. */
  range?: Range | null
  onRange?: (r: Range | null) => void
}

const font = '11px system-ui, sans-serif'

export function Chart({ title, data, group, extent: shared, height = 190, note, endLabels, range, onRange }: Props) {
  const dark = useDark()
  const host = useRef<HTMLDivElement>(null)
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const [at, setAt] = useState<number | null>(null)
  const colour = (c: Colour) => c[dark ? 1 : 0]

  const shown = useMemo(() => ({ ...data, lines: data.lines.filter((l) => !hidden.has(l.label)) }), [data, hidden])
  const e = shared ?? extent(data)
  // Read while drawing: a new selection needs no new plot.
  const selection = useRef({ range, onRange })
  selection.current = { range, onRange }
  const live = useRef<uPlot | null>(null)
  const selects = onRange !== undefined

  useEffect(() => {
    const el = host.current!
    const css = getComputedStyle(document.documentElement)
    const ink = css.getPropertyValue('--muted').trim()
    const grid = css.getPropertyValue('--grid').trim()
    const paper = css.getPropertyValue('--paper').trim()
    const values = shown.lines.map((l) => l.values)
    const drawn = shown.stacked ? stack(values) : values
    // Areas are opaque and drawn from the total down, so each shows its own slice.
    const order = shown.lines.map((_, i) => i)
    if (shown.stacked) order.reverse()
    const width = () => Math.max(200, Math.floor(el.getBoundingClientRect().width))
    const plot = new uPlot(
      {
        width: width(), height, legend: { show: false }, padding: [10, endLabels && width() > 560 ? endRoom(shown) : 18, 0, 0],
        cursor: {
          sync: { key: group, setSeries: false, scales: ['x', null] as unknown as [string, string] },
          drag: { x: true, y: false, setScale: !selects }, points: { show: !shown.stacked, size: 5 },
        },
        scales: {
          x: { time: false, range: (_u, lo, hi) => (selects || (lo === shown.x[0] && hi === shown.x.at(-1)) ? e.x : [lo, hi]) },
          y: { range: () => e.y },
        },
        axes: [
          { stroke: ink, font, size: 26, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, size: 4 },
            values: (_u, ticks) => ticks.map((t) => duration(t).replace(' ', '\u202f')) },
          { stroke: ink, font, size: 44, grid: { stroke: grid, width: 1 }, ticks: { show: false },
            values: (_u, ticks) => ticks.map((t) => num(t)) },
        ],
        series: [
          {},
          ...order.map((i): uPlot.Series => {
            const l = shown.lines[i]!
            const c = colour(l.colour)
            return {
              label: l.label, stroke: c, width: shown.stacked ? 0.5 : (l.width ?? 1.5),
              points: { show: false },
              ...(shown.stacked ? { fill: c } : {}),
              ...(l.dash ? { dash: [4, 4] } : {}),
            }
          }),
        ],
        hooks: {
          draw: [
            (u) => drawMarks(u, shown.marks, colour, paper),
            (u) => drawRange(u, selection.current.range ?? null, paper, ink),
            (u) => { if (endLabels) drawEnds(u, shown, colour, paper) },
          ],
          setSelect: [(u) => {
            if (!selects || u.select.width < 3) return
            selection.current.onRange?.([u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')])
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          }],
          setCursor: [(u) => setAt(u.cursor.idx ?? null)],
        },
      },
      [shown.x, ...order.map((i) => drawn[i]!)] as uPlot.AlignedData,
      el,
    )
    live.current = plot
    const back = () => selection.current.onRange?.(null)
    plot.over.addEventListener('dblclick', back)
    let pending = 0
    const resize = new ResizeObserver(() => {
      cancelAnimationFrame(pending)
      pending = requestAnimationFrame(() => { if (width() !== plot.width) plot.setSize({ width: width(), height }) })
    })
    resize.observe(el)
    return () => {
      resize.disconnect()
      cancelAnimationFrame(pending)
      plot.destroy()
    }
  }, [shown, dark, group, height, e.x[0], e.x[1], e.y[1], endLabels, selects])
  useEffect(() => live.current?.redraw(false), [range?.[0], range?.[1]])

  const toggle = (label: string) => {
    const next = new Set(hidden)
    if (!next.delete(label)) next.add(label)
    setHidden(next)
  }
  const t = useMemo(() => table(data), [data])
  return (
    <figure class="chart">
      <figcaption>
        <span class="title">{title}</span>
        <span class="unit">{at !== null && data.x[at] !== undefined ? `at ${duration(data.x[at])}` : range && !data.cumulative ? `${data.unit}, mean of ${num(range[0])}–${num(range[1])} s` : data.unit}</span>
      </figcaption>
      <div class="plot" ref={host} role="img" aria-label={`${title}, ${data.unit}; the table below holds the same data`} />
      <div class="legend">
        {data.lines.map((l) => {
          const v = at !== null ? l.values[at] : range && !data.cumulative ? meanIn(data.x, l.values, range) : undefined
          return (
            <button type="button" key={l.label} aria-pressed={!hidden.has(l.label)} onClick={() => toggle(l.label)} title={`show or hide ${l.label}`}>
              <Swatch colour={colour(l.colour)} dash={l.dash} />
              {l.label}
              {v !== undefined && <b>{v === null ? '–' : num(v)}</b>}
            </button>
          )
        })}
      </div>
      {note && <p class="note">{note}</p>}
      <details class="data">
        <summary>Data</summary>
        <div class="scroll" tabIndex={0}>
          <table>
            <thead><tr>{t.head.map((h) => <th scope="col" key={h}>{h}</th>)}</tr></thead>
            <tbody>{t.body.map((r, i) => <tr key={i}>{r.map((c, j) => <td class="n" key={j}>{c}</td>)}</tr>)}</tbody>
          </table>
        </div>
      </details>
    </figure>
  )
}

export function Swatch({ colour, dash }: { colour: string; dash?: boolean | undefined }) {
  return <i class={dash ? 'swatch dash' : 'swatch'} style={dash ? { borderColor: colour } : { background: colour }} aria-hidden="true" />
}

/** Fades what is not selected. */
function drawRange(u: uPlot, range: Range | null, paper: string, ink: string): void {
  if (!range) return
  const { left, top, width, height } = u.bbox
  const x = (t: number) => Math.max(left, Math.min(left + width, u.valToPos(t, 'x', true)))
  const [a, b] = [x(range[0]), x(range[1])]
  const ctx = u.ctx
  ctx.save()
  ctx.globalAlpha = 0.68
  ctx.fillStyle = paper
  ctx.fillRect(left, top, a - left, height)
  ctx.fillRect(b, top, left + width - b, height)
  ctx.globalAlpha = 1
  ctx.fillStyle = ink
  for (const at of [a, b]) ctx.fillRect(Math.round(at), top, devicePixelRatio, height)
  ctx.restore()
}

/** Each bound as a dashed line with its name; names that would touch are moved apart. */
function drawMarks(u: uPlot, marks: readonly Mark[], colour: (c: Colour) => string, paper: string): void {
  const r = devicePixelRatio
  const { left, top, width, height } = u.bbox
  const ctx = u.ctx
  ctx.save()
  ctx.font = `${11 * r}px system-ui, sans-serif`
  ctx.textAlign = 'right'
  ctx.textBaseline = 'middle'
  let free = top + height
  for (const m of [...marks].sort((a, b) => a.value - b.value)) {
    const y = Math.round(u.valToPos(m.value, 'y', true))
    if (y < top || y > top + height) continue
    ctx.strokeStyle = ctx.fillStyle = colour(m.colour)
    ctx.lineWidth = 1.25 * r
    ctx.setLineDash([5 * r, 4 * r])
    ctx.beginPath()
    ctx.moveTo(left, y)
    ctx.lineTo(left + width, y)
    ctx.stroke()
    let at = Math.min(y - 8 * r, free - 8 * r)
    if (at < top + 6 * r && y + 8 * r < free) at = y + 9 * r // no room above: below the line
    free = at - 7 * r
    ctx.setLineDash([])
    ctx.lineWidth = 3 * r
    ctx.strokeStyle = paper
    ctx.strokeText(m.label, left + width - 4 * r, at)
    ctx.fillText(m.label, left + width - 4 * r, at)
  }
  ctx.restore()
}

/** The name of each line where it ends. */
/** Pixels that the longest name at a line's end takes beside it. */
const endRoom = (c: ChartData): number => Math.min(240, 40 + 7 * Math.max(0, ...c.lines.filter((l) => !l.dash).map((l) => l.label.length + ' · 12.3 s'.length)))

function drawEnds(u: uPlot, c: ChartData, colour: (c: Colour) => string, paper: string): void {
  const r = devicePixelRatio
  const { top } = u.bbox
  const ctx = u.ctx
  ctx.save()
  ctx.font = `600 ${12 * r}px system-ui, sans-serif`
  ctx.textBaseline = 'middle'
  ctx.lineWidth = 4 * r
  ctx.strokeStyle = paper
  const points: { text: string; brief: string; colour: string; x: number; y: number; w: number }[] = []
  for (const l of c.lines) {
    if (l.dash) continue // named in the legend
    let i = l.values.length - 1
    while (i >= 0 && l.values[i] === null) i--
    if (i < 0) continue
    const x = u.valToPos(c.x[i]!, 'x', true)
    ctx.fillStyle = colour(l.colour)
    ctx.beginPath()
    ctx.arc(x, u.valToPos(l.values[i]!, 'y', true), 3.5 * r, 0, 7)
    ctx.fill()
    const text = `${l.label} · ${duration(Math.round(c.x[i]! * 10) / 10)}`
    points.push({ text, brief: l.label, colour: colour(l.colour), x, y: Math.max(top + 8 * r, u.valToPos(l.values[i]!, 'y', true)), w: ctx.measureText(text).width })
  }
  const ends: (Label & { text: string; colour: string; x: number; align: CanvasTextAlign })[] = points.map((p) => {
    // To the right of the end, unless another line ends there; else to the left of
    // it, and below it where the frame leaves no room on the right. Where neither
    // side has room for name and time, the name has to do.
    const room = p.x + p.w + 12 * r < ctx.canvas.width
    const taken = points.some((o) => o.x > p.x && o.x < p.x + p.w + 12 * r)
    const text = taken && p.x - p.w <= u.bbox.left ? p.brief : p.text
    const w = text === p.text ? p.w : ctx.measureText(text).width
    const right = room && !(taken && p.x - w > u.bbox.left)
    const at = right ? p.x + 8 * r : p.x - 8 * r
    return { text, colour: p.colour, x: at, align: right ? 'left' : 'right', left: right ? at : at - w, right: right ? at + w : at, y: right || room ? p.y + 2 * r : p.y + 16 * r }
  })
  const ys = apart(ends, 16 * r)
  ends.forEach((e, i) => {
    ctx.fillStyle = e.colour
    ctx.textAlign = e.align
    ctx.strokeText(e.text, e.x, ys[i]!)
    ctx.fillText(e.text, e.x, ys[i]!)
  })
  ctx.restore()
}
