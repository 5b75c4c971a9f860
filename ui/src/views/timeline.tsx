// Each round over time, all its charts on one axis; what is selected there is
// what the flame graph and the tables below show.
import { useMemo } from 'preact/hooks'
import type { Round } from '../recording.ts'
import { cpuChart, curveChart, extent, rateChart, union, type ChartData, type Extent } from '../model/chart.ts'
import { diskCharts, recorded, requestChart, stageRange, tidy, waitingChart, whole } from '../model/timeline.ts'
import type { Range } from '../model/flame/tree.ts'
import { duration, num } from '../model/format.ts'
import { stageColour } from '../model/colour.ts'
import { flag, useKept } from './address.ts'
import { Chart, Swatch } from './chart.tsx'
import { useColour } from './theme.ts'

interface Props {
  rounds: readonly Round[]
  ranges: readonly (Range | null)[]
  onRange: (round: number, range: Range | null) => void
}

interface Drawn { title: string; data: ChartData; note?: string; height: number }

function chartsOf(r: Round): (Drawn | { title: string; missing: string })[] {
  const rates = rateChart(r.rates)
  const steps = Math.max(0, ...r.cpu.series.map((s) => s.cores.length))
  const missing = (title: string) => ({ title, missing: 'not recorded' })
  return [
    { title: 'Created, scheduled, running', data: curveChart(r.curves), height: 170 },
    { title: 'Pods waiting', data: waitingChart(r.curves), height: 130 },
    { title: 'Throughput and its bounds', data: rates, note: rates.notes.join(' '), height: 190 },
    r.cpu.series.length > 0 ? { title: 'CPU by process', data: cpuChart(r.cpu), height: 170 } : missing('CPU by process'),
    r.tracks.requests.length > 0 ? { title: 'Requests by client', data: requestChart(r.tracks, steps || Math.ceil(whole(r)[1] - r.tracks.start), recorded(r)), height: 140 } : missing('Requests by client'),
    ...(r.tracks.disk.length > 0 ? diskCharts(r.tracks).map((data) => ({ title: data.unit === '%' ? 'Disk busy' : 'Disk', data, height: 100 })) : [missing('Disk')]),
  ]
}

export function Timeline({ rounds, ranges, onRange }: Props) {
  const [same, setSame] = useKept('same', true, flag)
  const [close, setClose] = useKept('close', false, flag)
  const charts = useMemo(() => rounds.map(chartsOf), [rounds])
  const axes = useMemo(() => rounds.map(whole), [rounds])
  const several = rounds.length > 1
  const x = (i: number): Range => {
    const r = ranges[i]
    if (close && r) return r
    return same ? [Math.min(...axes.map((a) => a[0])), Math.max(...axes.map((a) => a[1]))] : axes[i]!
  }
  const titles = [...new Set(charts.flatMap((c) => c.map((d) => d.title)))]
  const shared = useMemo(() => new Map(titles.map((t): [string, Extent | undefined] => {
    const all = charts.flatMap((c) => c.filter((d): d is Drawn => d.title === t && 'data' in d))
    return [t, all.length > 0 ? union(all.map((d) => extent(d.data))) : undefined]
  })), [charts])
  return (
    <>
      <div class="headrow">
        <h2>Over time</h2>
        {several && <button type="button" class="switch" aria-pressed={same} onClick={() => setSame(!same)}>same axes in all rounds</button>}
        <button type="button" class="switch" aria-pressed={close} disabled={ranges.every((r) => r === null)} onClick={() => setClose(!close)}>show only what is selected</button>
        <span class="hint">Seconds since the first pod was asked for. Drag over a chart to select seconds: flame graph, requests, pods and logs below follow. Double-click takes it back.</span>
      </div>
      <div class={`rounds aligned of${Math.min(rounds.length, 3)}`}>
        {rounds.map((r, i) => (
          <div class="round" key={i} style={several ? { gridRow: `span ${2 + titles.length}` } : {}}>
            {several && <h3>{r.name}</h3>}
            <Bar r={r} axis={axes[i]!} view={x(i)} range={ranges[i] ?? null} onRange={(range) => onRange(i, range)} />
            {titles.map((t) => {
              const d = charts[i]!.find((c) => c.title === t)
              if (!d) return <div key={t} />
              if (!('data' in d)) return <p class="missing" key={t}>{t}: {d.missing}.</p>
              const own = same ? shared.get(t)! : extent(d.data)
              return <Chart key={t} title={t} data={d.data} group={`round ${i}`} height={d.height} extent={{ x: [...x(i)], y: own.y }} {...(d.note ? { note: d.note } : {})}
                range={ranges[i] ?? null} onRange={(range) => onRange(i, range && tidy(range, axes[i]!))} />
            })}
          </div>
        ))}
      </div>
    </>
  )
}

/** Phases, spikes and rhythms of a round on its axis, and the selection: by number, by key, or by what is marked. */
function Bar({ r, axis, view, range, onRange }: { r: Round; axis: Range; view: Range; range: Range | null; onRange: (r: Range | null) => void }) {
  const colour = useColour()
  // A finding is about a stage: it is marked where most pods waited there.
  const marks = useMemo(() => r.findings.filter((f) => f.stage !== '').slice(0, 4).map((f) => ({ f, at: stageRange(r, f.stage) })), [r])
  const span = view[1] - view[0]
  const left = (t: number) => `${(100 * Math.min(1, Math.max(0, (t - view[0]) / span))).toFixed(3)}%`
  const size = (a: number, b: number) => `${(100 * Math.max(0, Math.min(view[1], b) - Math.max(view[0], a)) / span).toFixed(3)}%`
  const phases = r.recording.phases.filter((p) => p.to > view[0] && p.from < view[1])
  const put = (a: number, b: number) => onRange(tidy([a, b], axis))
  const key = (e: KeyboardEvent) => {
    const unit = e.altKey ? 0.1 : 1
    const [a, b] = range ?? [0, Math.min(axis[1], 5)]
    if (e.key === 'Escape') onRange(null)
    else if (e.key === 'ArrowRight' && e.shiftKey) put(a, b + unit)
    else if (e.key === 'ArrowLeft' && e.shiftKey) put(a, Math.max(a + unit, b - unit))
    else if (e.key === 'ArrowRight') { const d = Math.min(unit, axis[1] - b); put(a + d, b + d) }
    else if (e.key === 'ArrowLeft') { const d = Math.min(unit, a - axis[0]); put(a - d, b - d) }
    else if (e.key === 'Home') put(axis[0], axis[0] + (b - a))
    else if (e.key === 'End') put(axis[1] - (b - a), axis[1])
    else if (e.key === 'Enter' && !range) put(a, b)
    else return
    e.preventDefault()
  }
  const field = (which: 0 | 1) => (
    <input type="number" step="0.5" min={axis[0]} max={axis[1]} value={range ? range[which] : ''} placeholder={num(axis[which])} aria-label={which === 0 ? 'selected from second' : 'selected to second'}
      onChange={(e) => { const v = e.currentTarget.valueAsNumber; if (Number.isFinite(v)) put(which === 0 ? v : range?.[0] ?? axis[0], which === 1 ? v : range?.[1] ?? axis[1]) }} />
  )
  return (
    <div class="timebar">
      <div class="band" tabIndex={0} role="slider" aria-label={`selected seconds of ${r.name}: arrows move, with Shift they change the end, Escape takes it back`}
        aria-valuemin={axis[0]} aria-valuemax={axis[1]} aria-valuenow={range ? range[0] : axis[0]} aria-valuetext={range ? `${num(range[0])} to ${num(range[1])} s` : 'all'} onKeyDown={key}>
        {phases.map((p, i) => <span class={`phase ${p.kind}`} key={i} style={{ left: left(p.from), width: size(p.from, p.to) }} title={`phase ${p.name} (${p.kind}), ${num(p.from)} to ${num(p.to)} s`}>{p.name}</span>)}
        {r.tracks.spikes.map((m, i) => <i class="spike" key={`s${i}`} style={{ left: left(m.from), width: size(m.from, m.to) }} title={m.text} />)}
        {marks.map(({ f, at }, i) => <i class="found" key={`f${i}`} style={{ left: left(at[0]), width: size(at[0], at[1]), background: colour(stageColour(f.stage)) }} title={f.summary} />)}
        {range && <i class="chosen" style={{ left: left(range[0]), width: size(range[0], range[1]) }} />}
      </div>
      <p class="pick">
        <span>Seconds {field(0)} to {field(1)}{range && <> · {duration(Math.round((range[1] - range[0]) * 10) / 10)}</>}</span>
        {r.recording.phases.filter((p) => tidy([p.from, p.to], axis)).map((p, i) => <button type="button" key={i} onClick={() => put(p.from, p.to)}>{p.name}</button>)}
        {r.tracks.spikes.slice(0, 5).map((m, i) => <button type="button" key={`s${i}`} title={m.text} onClick={() => put(m.from, m.to)}>spike at {duration(Math.round(m.from))}</button>)}
        {marks.map(({ f, at }, i) => <button type="button" key={`f${i}`} title={`${f.summary}: the seconds with half of the most pods waiting or more`} onClick={() => put(at[0], at[1])}><Swatch colour={colour(stageColour(f.stage))} /> {f.id}</button>)}
        {range && <button type="button" onClick={() => onRange(null)}>all</button>}
      </p>
      {r.tracks.rhythms.length > 0 && <p class="small">{r.tracks.rhythms.slice(0, 3).map((x, i) => <span key={i}>{i > 0 && ' · '}<b>{x.name.length > 80 ? `${x.name.slice(0, 79)}…` : x.name}</b> {x.text}</span>)}</p>}
    </div>
  )
}
