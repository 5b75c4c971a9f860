// How busy resources were, how long the disks took, and the ways of claims.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { ClaimTable, Heat, HeatMap, Round, UseCheck } from '../recording.ts'
import { claimRows, fullness, heatCells, heatSum, latency, limits, useWindow, type ClaimRow } from '../model/resources.ts'
import { pattern, type Range } from '../model/flame/tree.ts'
import { whole } from '../model/timeline.ts'
import { num, value } from '../model/format.ts'
import { heatColour, stageColour } from '../model/colour.ts'
import { Swatch } from './chart.tsx'
import { useColour, useDark } from './theme.ts'

interface Props { rounds: readonly Round[]; ranges: readonly (Range | null)[] }

/** One round of several, by a row of buttons. */
function usePicked(rounds: readonly Round[]) {
  const [picked, pick] = useState(0)
  const at = Math.min(picked, rounds.length - 1)
  const choice = rounds.length > 1 && <span class="choice" role="group" aria-label="Round">{rounds.map((v, i) => <button type="button" class="switch" key={i} aria-pressed={i === at} onClick={() => pick(i)}>{v.name}</button>)}</span>
  return { at, r: rounds[at], choice }
}

const kinds = ['utilisation', 'saturation', 'errors']
const loud: Record<string, string> = { saturated: 'bad', errors: 'bad', watch: 'warn', 'not measurable': 'unmeasured', ok: '' }
const few = 20

export function Use({ rounds, ranges }: Props) {
  const { at, r, choice } = usePicked(rounds)
  const [text, setText] = useState('')
  const [all, setAll] = useState(false)
  if (!r || r.use.length === 0) return <p class="missing">The checklist could not be made: neither processes nor metrics were recorded.</p>
  const range = ranges[at] ?? null
  const phase = useWindow(r.use, range)
  const wanted = pattern(text)
  const list = r.use.filter((c) => c.phase === phase && (!wanted || wanted.test([c.resource, c.instance, c.component, c.aspect, c.kind, c.verdict].join(' '))))
  const first = list[0]
  const count = (v: string) => list.filter((c) => c.verdict === v).length
  return (
    <>
      <div class="controls">
        {choice}
        <label>Filter <input type="search" size={26} value={text} spellcheck={false} placeholder="resource, component, verdict" onInput={(e) => setText(e.currentTarget.value)} /></label>
        <output>{phase ? `phase ${phase}` : 'the whole run'}{first && `, ${num(first.from)}–${num(first.to)} s`}: {['saturated', 'errors', 'watch', 'not measurable', 'ok'].filter((v) => count(v) > 0).map((v) => `${count(v)} ${v}`).join(', ')}</output>
      </div>
      {range && <p class="note">Assessed for whole phases: {phase ? 'this is the one that holds the selected seconds.' : 'no single phase holds the selected seconds, so this is the whole run.'}</p>}
      <div class="scroll" tabIndex={0} role="region" aria-label="checklist of resources">
        <table class="grid use">
          <thead><tr><th scope="col">Resource</th><th scope="col">Of</th><th scope="col">What</th><th scope="col" class="n">Value</th><th scope="col">Limit</th><th scope="col">Verdict</th><th scope="col">Evidence</th></tr></thead>
          <tbody>{(all ? list : list.slice(0, few)).map((c, i) => <CheckRow key={i} c={c} />)}</tbody>
        </table>
      </div>
      {list.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${list.length}`}</button>}
      <p class="note">Utilisation, saturation, errors: {kinds.map((k) => `${list.filter((c) => c.kind === k).length} of ${k}`).join(', ')}. The worst come first. Limits come from the sources that a row names.</p>
    </>
  )
}

function CheckRow({ c }: { c: UseCheck }) {
  const part = fullness(c)
  return (
    <tr>
      <th scope="row">{c.resource}{c.instance && <small>{c.instance}</small>}</th>
      <td>{c.component}</td>
      <td class="says">{c.kind}<small>{c.aspect}</small></td>
      <td class="n">{c.value === null ? '–' : `${num(c.value)} ${c.unit === 'share' ? '' : c.unit}`}{part !== null && <span class="gauge" aria-hidden="true"><i class={loud[c.verdict]} style={{ width: `${100 * part}%` }} /></span>}</td>
      <td class="says"><span title={c.source}>{limits(c)}</span></td>
      <td class={`says ${loud[c.verdict] ?? ''}`}>{c.verdict}<small>{c.reason || c.detail}</small></td>
      <td class="says"><code>{c.evidence}</code></td>
    </tr>
  )
}

export function BlockIO({ rounds, ranges, onRange }: Props & { onRange: (round: number, range: Range | null) => void }) {
  const { at, r, choice } = usePicked(rounds)
  const [picked, pick] = useState('')
  if (!r || r.heat.maps.length === 0) {
    const why = r?.gaps.find((g) => /blockio/.test(g.id))
    return <>{choice}<p class="missing">Requests to disks were not recorded{why && why.why !== 'not recorded' && `: ${why.why}`}.</p></>
  }
  const range = ranges[at] ?? null
  const keyOf = (m: HeatMap) => `${m.process}\n${m.kind}`
  const m = r.heat.maps.find((x) => keyOf(x) === picked) ?? r.heat.maps.find((x) => x.process === 'etcd' && x.kind === 'syncs') ?? r.heat.maps[0]!
  return (
    <>
      <div class="controls">{choice}<span class="hint">Columns are seconds, rows latencies by factors of two; the stronger the colour, the more of them. Drag to select seconds.</span></div>
      <HeatCanvas h={r.heat} m={m} axis={whole(r)} range={range} onRange={(x) => onRange(at, x)} />
      <div class="scroll" tabIndex={0} role="region" aria-label="requests to disks by process">
        <table class="grid">
          <caption>By process{range && `, ${num(range[0])}–${num(range[1])} s`}</caption>
          <thead><tr><th scope="col">Process</th><th scope="col">Kind</th><th scope="col" class="n">number</th><th scope="col" class="n">half below</th><th scope="col" class="n">99 of 100 below</th></tr></thead>
          <tbody>
            {r.heat.maps.map((x) => {
              const s = heatSum(r.heat, x, range)
              return (
                <tr key={keyOf(x)}>
                  <th scope="row"><button type="button" class="switch" aria-pressed={x === m} onClick={() => pick(keyOf(x))}>{x.process}</button></th><td>{x.kind}</td>
                  <td class="n">{s.count}</td><td class="n">{s.p50 === null ? '–' : latency(s.p50)}</td><td class="n">{s.p99 === null || s.count < 100 ? '–' : latency(s.p99)}</td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <p class="note">A request is what the kernel asks of a disk, from its submission to its end; a sync is a call that returns when data is durable. Half, and 99 of 100, took less than what is told: the upper end of a row.</p>
    </>
  )
}

const left = 58
const bottom = 22
const cellHeight = 14

function HeatCanvas({ h, m, axis, range, onRange }: { h: Heat; m: HeatMap; axis: Range; range: Range | null; onRange: (r: Range | null) => void }) {
  const dark = useDark()
  const host = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [width, setWidth] = useState(0)
  const [drag, setDrag] = useState<Range | null>(null)
  const [over, setOver] = useState('')
  const cells = useMemo(() => heatCells(m), [m])
  const rows = useMemo(() => cells.reduce<Range>((r, c) => [Math.min(r[0], c.row), Math.max(r[1], c.row)], [Infinity, 0]), [cells])
  const most = useMemo(() => Math.max(1, ...cells.map((c) => c.count)), [cells])
  const height = (rows[1] - rows[0] + 1) * cellHeight + bottom
  const x = (t: number) => left + ((t - axis[0]) / (axis[1] - axis[0])) * (width - left - 18)
  const time = (px: number) => axis[0] + ((px - left) / (width - left - 18)) * (axis[1] - axis[0])
  useLayoutEffect(() => {
    const el = host.current!
    const fit = () => setWidth(Math.max(260, Math.floor(el.clientWidth)))
    fit()
    const seen = new ResizeObserver(() => requestAnimationFrame(fit))
    seen.observe(el)
    return () => seen.disconnect()
  }, [])
  useLayoutEffect(() => {
    const el = canvas.current
    if (!el || width === 0) return
    const ratio = devicePixelRatio || 1
    el.width = width * ratio
    el.height = height * ratio
    const ctx = el.getContext('2d')!
    ctx.scale(ratio, ratio)
    const css = getComputedStyle(document.documentElement)
    ctx.font = '11px system-ui, sans-serif'
    ctx.fillStyle = css.getPropertyValue('--muted').trim()
    ctx.textAlign = 'right'
    ctx.textBaseline = 'middle'
    const y = (row: number) => (rows[1] - row) * cellHeight
    for (let row = rows[0]; row <= rows[1]; row++) if ((rows[1] - row) % 2 === 0) ctx.fillText(latency(h.edges[row] ?? 0), left - 6, y(row) + cellHeight - 1)
    ctx.textAlign = 'center'
    for (let i = 0; i <= 6; i++) {
      const t = axis[0] + ((axis[1] - axis[0]) * i) / 6
      ctx.fillText(`${num(Math.round(t))} s`, Math.min(width - 18, x(t)), height - 8)
    }
    for (const c of cells) {
      const t = h.start + c.step * h.step
      if (t + h.step < axis[0] || t > axis[1]) continue
      ctx.fillStyle = heatColour(Math.log(1 + c.count) / Math.log(1 + most))[dark ? 1 : 0]
      const a = Math.max(left, x(t))
      ctx.fillRect(a, y(c.row), Math.max(1, x(t + h.step) - a - 0.5), cellHeight - 1)
    }
    const shown = drag ?? range
    if (shown) {
      ctx.fillStyle = css.getPropertyValue('--paper').trim()
      ctx.globalAlpha = 0.68
      ctx.fillRect(left, 0, Math.max(0, x(shown[0]) - left), height - bottom)
      ctx.fillRect(x(shown[1]), 0, Math.max(0, width - x(shown[1])), height - bottom)
      ctx.globalAlpha = 1
    }
  })
  const at = (e: PointerEvent) => e.clientX - canvas.current!.getBoundingClientRect().left
  const told = (e: PointerEvent) => {
    const t = time(at(e))
    const row = rows[1] - Math.floor((e.clientY - canvas.current!.getBoundingClientRect().top) / cellHeight)
    const step = Math.floor((t - h.start) / h.step)
    const c = cells.find((v) => v.step === step && v.row === row)
    setOver(c ? `${num(h.start + step * h.step)} s: ${c.count} of ${latency(h.edges[row] ?? 0)} to ${latency(h.edges[row + 1] ?? 2 * h.edges[row]!)}` : '')
  }
  return (
    <figure class="chart heat">
      <figcaption><span class="title">{m.process}, {m.kind}</span><span class="unit">{over || 'latency over time'}</span></figcaption>
      <div ref={host}>
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} role="img" aria-label={`latencies of ${m.kind} of ${m.process} over time; the table below sums them up`}
          onPointerDown={(e) => { canvas.current!.setPointerCapture(e.pointerId); setDrag([time(at(e)), time(at(e))]) }}
          onPointerMove={(e) => { told(e); if (drag) setDrag([drag[0], time(at(e))]) }}
          onPointerUp={() => { if (drag && Math.abs(x(drag[1]) - x(drag[0])) > 3) onRange([Math.min(...drag), Math.max(...drag)]); setDrag(null) }}
          onPointerLeave={() => setOver('')} onDblClick={() => onRange(null)} />
      </div>
    </figure>
  )
}

const legs = [['provisioned', 'to be provisioned', 'controller'], ['bound', 'to be bound', 'accept'], ['attached', 'to be attached', 'decide'], ['running', 'to its pod running', 'start']] as const

export function Claims({ rounds, ranges }: Props) {
  const { at, r, choice } = usePicked(rounds)
  const [text, setText] = useState('')
  const [all, setAll] = useState(false)
  const colour = useColour()
  const t: ClaimTable | undefined = r?.claims
  if (!t || t.names.length === 0) return <>{choice}<p class="note">This load makes no persistent volume claims.</p></>
  const range = ranges[at] ?? null
  const wanted = pattern(text)
  const list = claimRows(t, range).filter((c) => !wanted || wanted.test(`${c.name} ${c.class}`))
  const shown = all ? list.slice(0, 500) : list.slice(0, 15)
  const ends = (c: ClaimRow) => [c.created, c.provisioned, c.bound, c.attached, c.running].filter((v): v is number => v !== null)
  const from = Math.min(0, ...shown.flatMap(ends))
  const to = Math.max(from + 0.1, ...shown.flatMap(ends))
  const x = (v: number) => `${(100 * (v - from)) / (to - from)}%`
  return (
    <>
      <div class="controls">
        {choice}
        <label>Filter <input type="search" value={text} spellcheck={false} placeholder="claim or class" onInput={(e) => setText(e.currentTarget.value)} /></label>
        <output>{list.length} claims{range && `, on their way within ${num(range[0])}–${num(range[1])} s`}, the slowest first{t.left > 0 && `; ${t.left} faster ones are only in the recording`}</output>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="steps of claims">
        <table class="grid">
          <caption>Steps, in seconds, of the whole run</caption>
          <thead><tr><th scope="col">Class</th><th scope="col">Step</th><th scope="col" class="n">n</th><th scope="col" class="n">p50</th><th scope="col" class="n">p99</th><th scope="col" class="n">max</th></tr></thead>
          <tbody>{t.steps.map((s, i) => <tr key={i}><td>{s.class}</td><th scope="row">{s.name}<small>{s.what}</small></th><td class="n">{s.n || '–'}</td><td class="n">{value(s.p50)}</td><td class="n" title={s.p99 === null ? 'no p99 below 100 samples' : undefined}>{value(s.p99)}</td><td class="n">{value(s.max)}</td></tr>)}</tbody>
        </table>
      </div>
      <p class="note kinds">{legs.map(([, label, stage]) => <span key={stage}><Swatch colour={colour(stageColour(stage))} /> {label}</span>)}</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="the slowest claims">
        <table class="grid pods">
          <thead><tr><th scope="col">Claim</th><th scope="col">Class</th><th scope="col" class="way">Its way</th><th scope="col" class="n">created at</th>{legs.map(([, label]) => <th scope="col" class="n" key={label}>{label}</th>)}</tr></thead>
          <tbody>
            {shown.map((c) => (
              <tr key={c.name}>
                <th scope="row">{c.name}</th><td>{c.class || '–'}</td>
                <td class="way"><span class="waybar">{claimBars(c).map(([a, b, stage]) => <i key={stage} style={{ left: x(a), width: `${(100 * (b - a)) / (to - from)}%`, background: colour(stageColour(stage)) }} />)}</span></td>
                <td class="n">{value(c.created)}</td>
                {claimLegs(c).map((d, i) => <td class="n" key={i}>{value(d)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.length > 15 && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? 'only the first 15' : list.length > 500 ? 'the first 500' : `all ${list.length}`}</button>}
    </>
  )
}

/** How long each leg took, from the last moment before it that was seen. */
function claimLegs(c: ClaimRow): (number | null)[] {
  let before = c.created
  return legs.map(([key]) => {
    const t = c[key]
    const d = before === null || t === null ? null : Math.max(0, t - before)
    before = t === null ? before : Math.max(t, before ?? t)
    return d
  })
}

function claimBars(c: ClaimRow): [number, number, string][] {
  const out: [number, number, string][] = []
  let before = c.created
  for (const [key, , stage] of legs) {
    const t = c[key]
    if (before !== null && t !== null && t > before) out.push([before, t, stage])
    before = t === null ? before : Math.max(t, before ?? t)
  }
  return out
}

