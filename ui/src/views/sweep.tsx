// A sweep: each indicator over the values of a setting.
import { useState } from 'preact/hooks'
import type { Swept, SweptRow } from '../recording.ts'
import { signed, tone } from '../model/forest.ts'
import { num, value } from '../model/format.ts'
import { between, every, scale, short, sweptValues } from '../model/plot.ts'
import { Cell, Figure, height, Levels, pad, said, up, Upright, Warnings, width } from './plot.tsx'

export function SweepView({ s }: { s: Swept }) {
  const [all, setAll] = useState(false)
  const told = s.rows.filter((r) => r.reason === '')
  const rows = all ? told : told.filter((r) => r.main || r.differs)
  const missing = s.rows.filter((r) => r.reason !== '')
  return (
    <>
      <section aria-label="Sweep">
        <p class="small"><b>{s.axes.length > 1 ? 'Settings' : 'Setting'}</b> {s.axes.map((a, i) => <code key={i}>{a} </code>)} {s.runs}</p>
        {s.prices.length > 0 && <ul>{s.prices.map((p, i) => <li key={i}>{p}</li>)}</ul>}
        <h2>Did it act?</h2>
        <ul class="checks">{s.checks.map((c, i) => <li key={i}><b class={c.good ? 'good' : 'warn'}>{c.good ? 'yes' : 'not seen'}</b> {c.what}: {c.says}</li>)}</ul>
      </section>
      <section aria-label="Indicators">
        <h2>Cost beside what a user feels</h2>
        <div class="controls">
          <button type="button" class="switch" aria-pressed={all} onClick={() => setAll(!all)}>all {told.length} indicators</button>
          <span class="hint">Shown are the main ones, and those that differ somewhere. Each run is a dot, the median a bar with its interval.</span>
        </div>
        {rows.map((r) => <Row key={r.id} s={s} r={r} />)}
        <p class="note">{s.note}</p>
      </section>
      <Warnings of={s.warnings} />
      {missing.length > 0 && <div class="reasons unknown"><h2>Not assessed</h2><ul>{missing.map((r) => <li key={r.id}>{r.name}: {r.reason}</li>)}</ul></div>}
    </>
  )
}

function Row({ s, r }: { s: Swept; r: SweptRow }) {
  const n = s.points.length
  const y = scale(sweptValues(r))
  const x = (i: number) => pad.left + ((i + 0.5) / n) * (width - pad.left - pad.right)
  const skip = every(n, 10)
  const room = Math.max(6, Math.floor((width / Math.min(n, 10)) / 7))
  const references = s.points.map((p, i) => ({ p, i })).filter(({ p }) => p.reference === null)
  return (
    <Figure title={r.name} unit={`${r.unit}, ${r.lower ? 'less' : 'more'} is better`}
      says={`${r.name} at ${n} points: ${s.points.map((p, i) => `${p.name} ${said(r.cells[i]!.median, r.unit)} ${r.cells[i]!.verdict}`).join('; ')}; the table below holds the same data`}
      after={<Told s={s} r={r} />}>
      <Levels s={y} />
      {references.length === 1 && r.cells[references[0]!.i]!.median.value !== null && <line x1={pad.left} x2={width - pad.right} y1={up(y, r.cells[references[0]!.i]!.median.value!)} y2={up(y, r.cells[references[0]!.i]!.median.value!)} class="reference" />}
      {r.cells.map((c, i) => (
        <g key={i} class={`point ${tone(c.verdict)}`}>
          {c.values.map((v, j) => v !== null && <circle key={j} cx={x(i) + 9} cy={up(y, v)} r={2.5} class="each"><title>{`${s.points[i]!.name}: ${num(v)} ${r.unit}`}</title></circle>)}
          <Upright x={x(i)} s={y} e={c.median} />
          {c.median.value !== null && <rect x={x(i) - 7} y={up(y, c.median.value) - 2} width={14} height={4} class="median"><title>{`${s.points[i]!.name}: median ${num(c.median.value)} ${r.unit}, n ${c.median.n}`}</title></rect>}
          {(c.verdict === 'better' || c.verdict === 'worse') && <text x={x(i)} y={pad.top - 2} text-anchor="middle" class="verdict">{c.verdict}</text>}
          {i % skip === 0 && <text x={x(i)} y={height - 10} text-anchor="middle">{short(s.points[i]!.name, room)}<title>{s.points[i]!.name}</title></text>}
        </g>
      ))}
    </Figure>
  )
}

/** What the plot shows, in numbers, and what it is worth. */
function Told({ s, r }: { s: Swept; r: SweptRow }) {
  const seen = s.points.some((p) => p.seen !== '')
  const change = (x: number) => (r.ratios ? `×${num(x)}` : signed(x))
  return (
    <>
      <p class="small">{r.differs ? '' : `~ No difference that these runs can show${r.within ? `: ${r.within}` : ''}. `}{r.fit}</p>
      <details class="data" open={r.differs}>
        <summary>Data</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={`table: ${r.name}`}>
          <table class="grid">
            <thead><tr><th scope="col">{s.axes.map((a) => a.split('.').at(-1)).join(', ')}</th>{seen && <th scope="col">seen</th>}<th scope="col" class="n">median, {r.unit}</th><th scope="col" class="n">from the reference</th><th scope="col" class="n">p</th><th scope="col">verdict</th></tr></thead>
            <tbody>
              {r.cells.map((c, i) => (
                <tr key={i} class={i === s.best ? 'best' : undefined}>
                  <th scope="row">{s.points[i]!.name}{i === s.best && <small>best</small>}</th>
                  {seen && <td>{s.points[i]!.seen}</td>}
                  <Cell e={c.median} />
                  <td class="n">{c.change === null ? '–' : change(c.change)}<small>{between(c, change)}</small></td>
                  <td class="n">{c.p === null ? '' : c.p < 0.001 ? '< 0.001' : value(c.p)}</td>
                  <td class={tone(c.verdict)}>{c.verdict || 'reference'}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  )
}
