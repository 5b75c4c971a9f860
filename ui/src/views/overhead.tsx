// An overhead: what each layer of a cluster adds to an idle machine.
import { useState } from 'preact/hooks'
import type { AtRest, Estimated, RestUse } from '../recording.ts'
import { percent, value } from '../model/format.ts'
import { between, scale, short, stands, waterfall, type Scale } from '../model/plot.ts'
import { Cell, Figure, pad, Warnings, width } from './plot.tsx'

const cores = (x: number): string => (x < 0 ? `−${(-x).toFixed(4)}` : x.toFixed(4))
const more = (x: number): string => (x < 0 ? `−${(-x).toFixed(4)}` : `+${x.toFixed(4)}`)

export function OverheadView({ o }: { o: AtRest }) {
  return (
    <>
      {o.invalid && <div class="invalid"><b>Not valid. These numbers must not be used:</b> {o.invalid}</div>}
      <section aria-label="Layer by layer"><h2>Layer by layer</h2><Waterfall o={o} /></section>
      {o.instead.length > 0 && (
        <section aria-label="What it saves">
          <h2>What it saves</h2>
          <ul>
            {o.instead.map((a, i) => (
              <li key={i}><b>{a.name}</b>{' '}
                {a.sure ? <>{say(a.saved)} cores less than {a.than}{a.share !== null && `, ${percent(a.share)} of its cost`}.</> : <>~ No difference that {a.saved.n} rounds can show: {say(a.saved)} cores less than {a.than}.</>}
                {a.set.length > 0 && <small class="set">{a.set.map((s, j) => <code key={j}>{s} </code>)}</small>}
              </li>
            ))}
          </ul>
        </section>
      )}
      <section aria-label="Do the numbers add up?">
        <h2>Do the numbers add up?</h2>
        <ul class="checks">{o.checks.map((c, i) => <li key={i}><b class={!c.assessed ? 'warn' : c.ok ? 'good' : 'bad'}>{!c.assessed ? 'not assessed' : c.ok ? 'yes' : 'no'}</b> {c.text}: difference {say(c.difference)} cores</li>)}</ul>
      </section>
      <section aria-label="Where it is used"><h2>Where it is used</h2><Uses o={o} /></section>
      <Warnings of={o.warnings} />
    </>
  )
}

const say = (e: Estimated): string => `${e.value === null ? 'unknown' : cores(e.value)}${between(e, cores) ? ` (${between(e, cores)}, n ${e.n})` : ` (n ${e.n})`}`

const rowHeight = 30
const names = 268
const numbers = 190

function Waterfall({ o }: { o: AtRest }) {
  const steps = waterfall(o.layers)
  const whole: readonly (readonly [string, Estimated | null, string])[] = [['all layers', o.total, 'sum'], ['the whole, measured apart', o.apart, 'apart'], ...o.instead.map((a) => [a.name, a.cores, 'instead'] as const)]
  const rows = [
    ...steps.map((s) => ({ name: `+ ${s.name}`, from: s.from, to: s.to, e: s.step, kind: s.to < s.from ? 'less' : 'more', sum: false })),
    ...whole.flatMap(([name, e, kind]) => (e && e.value !== null ? [{ name: kind === 'sum' ? `= ${name}` : name, from: 0, to: e.value, e, kind, sum: true }] : [])),
  ]
  const s: Scale = scale([0, ...rows.flatMap((r) => [r.from, r.to, (r.sum ? 0 : r.from) + (r.e.high ?? 0)])], true)
  const x = (v: number) => names + numbers + stands(s, v) * (width - names - numbers - pad.right)
  const h = rows.length * rowHeight + 34
  return (
    <Figure title="Cores that each layer adds" unit="cores, … is the 95 % interval" height={h} says={`${rows.map((r) => `${r.name} ${r.e.value === null ? 'unknown' : more(r.e.value)}`).join('; ')} cores; the table below holds the same data`}
      after={
        <>
          <p class="note">{o.note}</p>
          <details class="data"><summary>Data</summary><div class="scroll" tabIndex={0} role="region" aria-label="table: layers"><table class="grid">
            <thead><tr><th scope="col">Layer</th><th scope="col" class="n">the machine, cores</th><th scope="col" class="n">adds, cores</th><th scope="col" class="n">adds, wakeups/s</th></tr></thead>
            <tbody>{o.layers.map((l, i) => <tr key={i}><th scope="row">{l.name}</th><Cell e={l.cores} say={cores} />{i === 0 ? <><td class="n">–</td><td class="n">–</td></> : <><Cell e={l.step} say={more} /><Cell e={l.wakeups} /></>}</tr>)}</tbody>
          </table></div></details>
        </>
      }>
      {s.ticks.map((v) => <g key={v}><line x1={x(v)} x2={x(v)} y1={6} y2={h - 26} class="gridline" /><text x={x(v)} y={h - 8} text-anchor="middle">{value(v)}</text></g>)}
      {rows.map((r, i) => {
        const y = i * rowHeight + 8
        const low = (r.sum ? 0 : r.from) + (r.e.low ?? r.e.value ?? 0)
        const high = (r.sum ? 0 : r.from) + (r.e.high ?? r.e.value ?? 0)
        return (
          <g key={i} class={`layer ${r.kind}`}>
            <text x={4} y={y + 15} class={r.sum ? 'strong' : 'name'}>{short(r.name, 42)}<title>{r.name}</title></text>
            <text x={names + numbers - 12} y={y + 15} text-anchor="end">{r.e.value === null ? 'unknown' : more(r.e.value)}{between(r.e, more) && ` (${more(r.e.low ?? 0)}…${more(r.e.high ?? 0)})`}</text>
            <rect x={Math.min(x(r.from), x(r.to))} y={y + 4} width={Math.max(1.5, Math.abs(x(r.to) - x(r.from)))} height={rowHeight - 16} class="fill"><title>{`${r.name}: ${r.e.value === null ? 'unknown' : more(r.e.value)} cores, n ${r.e.n}`}</title></rect>
            {r.e.low !== null && r.e.high !== null && <line x1={x(low)} x2={x(high)} y1={y + 11} y2={y + 11} class="whisker" />}
            {!r.sum && i < steps.length - 1 && <line x1={x(r.to)} x2={x(r.to)} y1={y + 4} y2={y + rowHeight + 4} class="joint" />}
          </g>
        )
      })}
    </Figure>
  )
}

const owners: Record<string, string> = { kernel: 'The kernel', observer: 'Ours, who measure: not counted', others: 'Others: not counted', '': 'The machine’s own count' }
const few = 24

function Uses({ o }: { o: AtRest }) {
  const [all, setAll] = useState(false)
  const name = (u: RestUse) => owners[u.owner] ?? (o.command ? 'The command' : 'The cluster')
  const rows = all ? o.processes : o.processes.slice(0, few)
  const parts = [...rows, ...o.machine]
  const groups = [...new Set(parts.map(name))]
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="processes">
        <table class="grid">
          <thead><tr><th scope="col">Process</th><th scope="col" class="n">without, cores</th><th scope="col" class="n">with, cores</th><th scope="col" class="n">more, cores</th><th scope="col" class="n">wakeups/s</th></tr></thead>
          {groups.map((g) => (
            <tbody key={g}>
              <tr class="part"><th scope="rowgroup" colSpan={5}>{g}</th></tr>
              {parts.filter((u) => name(u) === g).map((u, i) => <tr key={i}><th scope="row">{u.name}</th><td class="n">{u.without.value === null ? '–' : cores(u.without.value)}</td><td class="n">{u.with.value === null ? '–' : cores(u.with.value)}</td><Cell e={u.more} say={more} /><td class="n">{value(u.wakeups.value)}</td></tr>)}
            </tbody>
          ))}
        </table>
      </div>
      {o.processes.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few} processes` : `all ${o.processes.length} processes`}</button>}
    </>
  )
}
