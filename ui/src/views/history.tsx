// Indicators run after run, with the changes of their level marked.
import { useState } from 'preact/hooks'
import type { Trend } from '../recording.ts'
import { levels, ticks, tone } from '../model/forest.ts'
import { moment, num, value } from '../model/format.ts'

const main = ['throughput', 'intent.last', 'startup.p99', 'cpu.total']
const width = 900
const height = 180
const pad = { left: 54, right: 14, top: 14, bottom: 24 }

export function HistoryView({ trends, leftOut }: { trends: readonly Trend[]; leftOut: readonly string[] }) {
  const [all, setAll] = useState(false)
  const shown = all ? trends : trends.filter((t) => main.includes(t.indicator) || t.steps.length > 0)
  const loads = [...new Set(trends.map((t) => `${t.experiment}\n${t.shape}\n${t.machine}`))]
  return (
    <>
      <div class="controls">
        <button type="button" class="switch" aria-pressed={all} onClick={() => setAll(!all)}>all {trends.length} indicators</button>
        <span class="hint">Shown are the main ones, and those that changed.</span>
      </div>
      {loads.map((k) => {
        const [experiment, , machine] = k.split('\n')
        const of = shown.filter((t) => `${t.experiment}\n${t.shape}\n${t.machine}` === k)
        if (of.length === 0) return null
        return <section key={k} aria-label={`${experiment} on ${machine}`}><h2>{experiment} <span class="unit">on {machine}</span></h2>{of.map((t) => <Plot key={t.indicator} t={t} />)}</section>
      })}
      {leftOut.length > 0 && <div class="reasons unknown"><h2>Left out</h2><ul>{leftOut.map((l) => <li key={l}>{l}</li>)}</ul></div>}
    </>
  )
}

function Plot({ t }: { t: Trend }) {
  const seen = t.values.filter((v): v is number => v !== null)
  const low = Math.min(...seen)
  const high = Math.max(...seen)
  const room = (high - low || Math.abs(high) || 1) * 0.12
  const [a, b] = [low >= 0 ? Math.max(0, low - room) : low - room, high + room]
  const n = t.values.length
  const x = (i: number) => pad.left + ((i + 0.5) / n) * (width - pad.left - pad.right)
  const y = (v: number) => height - pad.bottom - ((v - a) / (b - a)) * (height - pad.top - pad.bottom)
  const every = Math.max(1, Math.ceil(n / 6))
  return (
    <figure class="chart trend">
      <figcaption><span class="title">{t.name}</span><span class="unit">{t.unit}, {t.lower ? 'less' : 'more'} is better, n {n}</span></figcaption>
      <div class="scroll" tabIndex={0} role="region" aria-label={`${t.name}, ${t.experiment} on ${t.machine}`}>
        <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${t.name} of ${n} runs, the first ${value(t.values[0])}, the last ${value(t.values.at(-1))} ${t.unit}; the table below holds the same data`}>
          {ticks(a, b).map((v) => <g key={v}><line x1={pad.left} x2={width - pad.right} y1={y(v)} y2={y(v)} class="gridline" /><text x={pad.left - 6} y={y(v) + 4} text-anchor="end">{num(v)}</text></g>)}
          {t.labels.map((l, i) => l !== t.labels[i - 1] && <text key={`l${i}`} x={x(i - 0.4)} y={height - 6} text-anchor="start">{l}</text>)}
          {t.labels.length === 0 && t.at.map((when, i) => i % every === 0 && <text key={i} x={x(i)} y={height - 6} text-anchor={i === 0 ? 'start' : 'middle'}>{moment(when).slice(0, 10)}</text>)}
          {levels(t).map((l, i) => <line key={i} x1={x(l.from - 0.5)} x2={x(l.to - 0.5)} y1={y(l.value)} y2={y(l.value)} class="level" />)}
          {t.steps.map((s) => <g key={s.at} class={`step ${tone(s.verdict)}`}><line x1={x(s.at - 0.5)} x2={x(s.at - 0.5)} y1={pad.top} y2={height - pad.bottom} /><text x={x(s.at - 0.5) + 4} y={pad.top + 9}>×{num(s.ratio)}</text></g>)}
          {t.values.map((v, i) => v !== null && <circle key={i} cx={x(i)} cy={y(v)} r={3.5} class="dot"><title>{t.runs[i]}: {num(v)} {t.unit}, {moment(t.at[i]!)}</title></circle>)}
        </svg>
      </div>
      {t.note && <p class="note warn">Not assessed: {t.note}.</p>}
      {!t.note && t.steps.length === 0 && <p class="note">~ No change that these runs can show.</p>}
      {t.steps.map((s) => (
        <p class="small" key={s.at}><b class={tone(s.verdict)}>{s.verdict}</b> from {t.labels[s.at] ?? moment(t.at[s.at]!)} on (run <code>{t.runs[s.at]}</code>): {num(s.before)} → {num(s.after)} {t.unit}, p {s.p < 0.001 ? '< 0.001' : num(s.p)}. {s.changed.length > 0 ? <>What changed with it: {s.changed.map((c) => <code key={c.path}>{c.path}: {c.old || 'not set'} → {c.new || 'not set'} </code>)}</> : 'Nothing changed that the recordings show.'}</p>
      ))}
      <details class="data"><summary>Data</summary><div class="scroll" tabIndex={0}><table><thead><tr>{t.labels.length > 0 && <th scope="col">step</th>}<th scope="col">run</th><th scope="col">when</th><th scope="col" class="n">{t.unit}</th></tr></thead>
        <tbody>{t.values.map((v, i) => <tr key={i}>{t.labels.length > 0 && <td>{t.labels[i]}</td>}<td>{t.runs[i]}</td><td>{moment(t.at[i]!)}</td><td class="n">{value(v)}</td></tr>)}</tbody></table></div></details>
    </figure>
  )
}
