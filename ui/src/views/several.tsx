// Two sides of several runs: indicators with their intervals drawn, and what
// explains where they differ.
import { useState } from 'preact/hooks'
import type { Detail, Several, SideRow, Spread } from '../recording.ts'
import { blind, groups, place, ratioAxis, result, signed, tone, type RatioAxis } from '../model/forest.ts'
import { num, percent, splitFunction, value } from '../model/format.ts'
import { roundColour } from '../model/colour.ts'
import { Swatch } from './chart.tsx'
import type { Asked } from './flame.tsx'
import { useColour } from './theme.ts'

const width = 260
const height = 24

export function SeveralRuns({ s, onFunction }: { s: Several; onFunction: (a: Asked) => void }) {
  const colour = useColour()
  const axis = ratioAxis(s.rows.filter((r) => r.verdict !== 'no value' && r.verdict !== 'negligible'))
  const invalid = [...s.baseline, ...s.candidate].filter((r) => r.invalid.length > 0)
  const runs = (n: number) => (n === 1 ? '1 run' : `${n} runs`)
  return (
    <>
      <p class="note kinds">
        <span><Swatch colour={colour(roundColour(0))} /> baseline, {runs(s.baseline.length)}</span><span><Swatch colour={colour(roundColour(1))} /> candidate, {runs(s.candidate.length)}</span>
        {s.interval ? <span>Lines are intervals that hold all together with {percent(1 - s.alpha)}; ~ is no difference that these runs can show.</span> : <span class="warn">{s.note}</span>}
      </p>
      {s.changed.length > 0 && <p class="small"><b>What differs in the settings</b> {s.changed.map((c) => <code key={c.path}> {c.path}: {c.old || 'not set'} → {c.new || 'not set'}</code>)}</p>}
      {invalid.map((r) => <div class="invalid" key={r.id}><b>{r.id} is not valid. Its numbers must not be used:</b><ul>{r.invalid.map((w) => <li key={w}>{w}</li>)}</ul></div>)}
      {s.warnings.length > 0 && <div class="reasons unknown"><h3>Warnings</h3><ul>{s.warnings.map((w) => <li key={w}>{w}</li>)}</ul></div>}
      <div class="scroll" tabIndex={0} role="region" aria-label="indicators of both sides">
        <table class="grid forest">
          <caption>Indicators: medians over runs, and candidate over baseline</caption>
          <thead>
            <tr><th scope="col">Indicator</th><th scope="col" class="n">Baseline</th><th scope="col" class="n">Candidate</th>{s.interval && <th scope="col">Each run</th>}<th scope="col"><AxisHead axis={axis} /></th><th scope="col">Ratio</th><th scope="col">Verdict</th></tr>
          </thead>
          {groups.map(([id, name]) => {
            const rows = s.rows.filter((r) => r.group === id)
            if (rows.length === 0) return null
            return (
              <tbody key={id}>
                <tr class="part"><th scope="rowgroup" colSpan={s.interval ? 7 : 6}>{name}</th></tr>
                {rows.map((r) => <RowOf key={r.id} r={r} axis={axis} each={s.interval} />)}
              </tbody>
            )
          })}
        </table>
      </div>
      {s.details.map((d) => <Details key={d.id} d={d} onFunction={onFunction} />)}
    </>
  )
}

function RowOf({ r, axis, each }: { r: SideRow; axis: RatioAxis; each: boolean }) {
  return (
    <tr>
      <th scope="row">{r.name}<small>{r.unit}{r.neutral ? '' : r.lower ? ', less is better' : ', more is better'}</small></th>
      <Median s={r.baseline} /><Median s={r.candidate} />
      {each && <td><Strip r={r} /></td>}
      <td><Interval r={r} axis={axis} /></td>
      <td class="n">{result(r)}{r.p !== null && <small>p {r.p < 0.001 ? '< 0.001' : num(r.p)}, adjusted</small>}</td>
      <td class={`says ${tone(r.verdict)}`}>{r.verdict}<small>{blind(r)}</small></td>
    </tr>
  )
}

const Median = ({ s }: { s: Spread }) => (
  <td class="n" title={s.reason || undefined}>{value(s.value)}<small>{s.low !== null && s.high !== null ? `${num(s.low)}…${num(s.high)}, n ${s.n}` : s.n > 1 ? `n ${s.n}` : s.reason ? 'not measured' : ''}</small></td>
)

const x = (a: RatioAxis, ratio: number) => 8 + place(a, ratio) * (width - 16)

function AxisHead({ axis }: { axis: RatioAxis }) {
  return (
    <svg class="forestplot" viewBox={`0 0 ${width} 16`} width={width} height={16} role="img" aria-label="ratio of candidate to baseline">
      {axis.ticks.map((t) => <text key={t} x={x(axis, t)} y={12} text-anchor="middle">×{num(t)}</text>)}
    </svg>
  )
}

/** The ratio and its interval; hollow where one run each stands behind it, open where the interval is. */
function Interval({ r, axis }: { r: SideRow; axis: RatioAxis }) {
  const known = r.ratioLow !== null || r.ratioHigh !== null
  const from = r.ratioLow === null ? 0 : x(axis, r.ratioLow)
  const to = r.ratioHigh === null ? width : x(axis, r.ratioHigh)
  const cls = tone(r.verdict) || (r.verdict === '~' ? 'same' : 'plain')
  return (
    <svg class={`forestplot ${cls}`} viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={result(r)}>
      {axis.ticks.map((t) => <line key={t} x1={x(axis, t)} x2={x(axis, t)} y1={0} y2={height} class={t === 1 ? 'one' : 'gridline'} />)}
      {r.ratio !== null && known && <line x1={from} x2={to} y1={height / 2} y2={height / 2} class="whisker" />}
      {r.ratio !== null && known && r.ratioLow !== null && <line x1={from} x2={from} y1={7} y2={height - 7} class="whisker" />}
      {r.ratio !== null && known && r.ratioHigh !== null && <line x1={to} x2={to} y1={7} y2={height - 7} class="whisker" />}
      {r.ratio !== null && <circle cx={x(axis, r.ratio)} cy={height / 2} r={4.5} class={known ? 'dot' : 'dot hollow'} />}
    </svg>
  )
}

/** Each run of both sides on one scale. */
function Strip({ r }: { r: SideRow }) {
  const colour = useColour()
  const all = [...r.baseline.values, ...r.candidate.values].filter((v): v is number => v !== null)
  if (all.length === 0) return <>–</>
  const [low, high] = [Math.min(...all), Math.max(...all)]
  const at = (v: number) => 5 + (high > low ? (v - low) / (high - low) : 0.5) * 110
  return (
    <svg class="strip" viewBox="0 0 120 24" width={120} height={24} role="img" aria-label={`baseline ${r.baseline.values.map((v) => value(v)).join(', ')}; candidate ${r.candidate.values.map((v) => value(v)).join(', ')} ${r.unit}`}>
      {[r.baseline, r.candidate].map((s, i) => s.values.map((v, j) => v !== null && <circle key={`${i} ${j}`} cx={at(v)} cy={i === 0 ? 7 : 17} r={3} fill={colour(roundColour(i))} fill-opacity={0.75}><title>{num(v)} {r.unit}</title></circle>))}
    </svg>
  )
}

const titles: Record<string, string> = { functions: 'Functions that use more or less CPU', requests: 'Requests by user agent, verb and resource', logs: 'Lines of logs', use: 'Use of resources, the whole run' }
const few = 12

function Details({ d, onFunction }: { d: Detail; onFunction: (a: Asked) => void }) {
  const [all, setAll] = useState(false)
  const measures = d.rows[0]?.measures ?? []
  const code = d.id === 'functions'
  return (
    <section class="detail" aria-label={titles[d.id] ?? d.id}>
      <h3>{titles[d.id] ?? d.id}</h3>
      {d.notAssessed ? <p class="missing">Not assessed: {d.notAssessed}</p>
        : <p class="note">{d.tested ? `${d.looked} were looked at; of those here a share of at most ${percent(d.alpha)} is expected to be false.` : d.rows.length > 0 ? 'One run on a side: what moved most, and no interval.' : `Not searched for differences: ${d.why}.`}</p>}
      {d.tested && d.rows.length === 0 && <p class="note">~ No row differs.</p>}
      {d.rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`rows: ${titles[d.id] ?? d.id}`}>
          <table class="grid details-of">
            <thead><tr><th scope="col">What</th>{measures.map((m, i) => <th scope="col" class="n" key={i}>{m.name}{d.id !== 'use' && <>, {m.unit}</>}<small>baseline → candidate</small></th>)}<th scope="col">Verdict</th></tr></thead>
            <tbody>
              {(all ? d.rows : d.rows.slice(0, few)).map((r, i) => (
                <tr key={i}>
                  <th scope="row">
                    {code ? <><button type="button" class="sort" title="in the flame graph, against the baseline" onClick={() => onFunction({ component: r.key[0] ?? '', function: r.key[1] ?? '' })}><code><span class="path">{splitFunction(r.key[1] ?? '')[0]}</span>{splitFunction(r.key[1] ?? '')[1]}</code></button><small>{r.key[0]}</small></>
                      : r.key.filter(Boolean).join(' · ')}
                  </th>
                  {r.measures.map((m, j) => <td class="n" key={j}>{num(m.baseline)} → {num(m.candidate)}{d.id === 'use' && ` ${m.unit}`}{m.low !== null && m.high !== null && <small>{signed(m.candidate - m.baseline)} ({signed(m.low)} to {signed(m.high)})</small>}</td>)}
                  <td>{r.verdict}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {d.rows.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${d.rows.length}`}</button>}
    </section>
  )
}
