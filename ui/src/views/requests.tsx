// Who asks for what: clients, verbs and resources, count against time.
import { useMemo, useState } from 'preact/hooks'
import type { Round } from '../recording.ts'
import { clientColours, requestRows, stepsOf, type RequestRow } from '../model/timeline.ts'
import type { Range } from '../model/flame/tree.ts'
import { num, percent } from '../model/format.ts'
import { otherClients, type Colour } from '../model/colour.ts'
import { pattern } from '../model/flame/tree.ts'
import { oneOf, text as words, useKept } from './address.ts'
import { Swatch } from './chart.tsx'
import { useColour } from './theme.ts'

const few = 20
type By = 'seconds' | 'count' | 'mean' | 'errors'

export function Requests({ rounds, ranges }: { rounds: readonly Round[]; ranges: readonly (Range | null)[] }) {
  const [picked, pick] = useState(0)
  const at = Math.min(picked, rounds.length - 1)
  const r = rounds[at]
  const range = ranges[at] ?? null
  const [by, setBy] = useKept<By>('rby', 'seconds', oneOf('seconds', 'count', 'mean', 'errors'))
  const [text, setText] = useKept('rq', '', words)
  const [all, setAll] = useState(false)
  const colour = useColour()
  const colours = useMemo(() => (r ? clientColours(r.tracks) : new Map<string, Colour>()), [r])
  const of = (agent: string) => colour(colours.get(agent) ?? otherClients)
  const rows = useMemo(() => (r ? requestRows(r.tracks, range) : []), [r, range])
  if (!r || r.tracks.requests.length === 0) return <p class="missing">No requests were recorded: they come from the API server’s audit log.</p>
  const wanted = pattern(text)
  const list = rows.filter((x) => !wanted || wanted.test(`${x.agent} ${x.verb} ${x.resource}`)).sort((a, b) => value(b, by) - value(a, by))
  const count = list.reduce((s, x) => s + x.count, 0)
  const seconds = list.reduce((s, x) => s + x.seconds, 0)
  const head = (key: By, label: string) => (
    <th scope="col" class="n" aria-sort={by === key ? 'descending' : 'none'}><button type="button" class="sort" onClick={() => setBy(key)}>{label}{by === key && ' ▾'}</button></th>
  )
  // A place in which nothing was spent anywhere is no column.
  const parts = places.filter((p) => rows.some((x) => (x[p.key] ?? 0) >= 0.005))
  const sized = rows.some((x) => x.bytes !== null)
  const taken = range && stepsOf(r.tracks, range)
  return (
    <>
      <div class="controls">
        {rounds.length > 1 && <span class="choice" role="group" aria-label="Round">{rounds.map((x, i) => <button type="button" class="switch" key={i} aria-pressed={i === at} onClick={() => pick(i)}>{x.name}</button>)}</span>}
        <label>Filter <input type="search" value={text} spellcheck={false} placeholder="client, verb, resource" onInput={(e) => setText(e.currentTarget.value)} /></label>
        <output>{num(count)} requests, {num(seconds)} s of serving{taken ? `, ${num(taken[0])}–${num(taken[1])} s` : ''}</output>
      </div>
      <Scatter rows={list} colour={of} />
      <div class="scroll" tabIndex={0}>
        <table class="grid requests">
          <caption>Requests by client, verb and resource</caption>
          <thead><tr><th scope="col">Client</th><th scope="col">Verb</th><th scope="col">Resource</th>{head('count', 'requests')}{head('seconds', 'time, s')}<th scope="col" class="n">of all time</th>{head('mean', 'mean, ms')}{head('errors', 'refused')}{parts.map((p) => <th scope="col" class="n" key={p.key}>{p.label}</th>)}{sized && <th scope="col" class="n">sent, kB</th>}</tr></thead>
          <tbody>
            {(all ? list : list.slice(0, few)).map((x, i) => (
              <tr key={i}>
                <th scope="row"><Swatch colour={of(x.agent)} /> {x.agent}</th><td>{x.verb}</td><td>{x.resource}</td>
                <td class="n">{x.count}</td>
                <td class="n">{x.long ? '–' : num(x.seconds)}</td><td class="n">{x.long || seconds === 0 ? '–' : percent(x.seconds / seconds)}</td>
                <td class="n">{x.long ? '–' : num((1000 * x.seconds) / x.count)}</td><td class="n">{x.errors || '–'}</td>
                {parts.map((p) => <td class="n" key={p.key}>{x[p.key] === null ? '–' : percent(x[p.key]!)}</td>)}
                {sized && <td class="n">{x.bytes === null ? '–' : num(x.bytes / 1000)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${list.length}`}</button>}
      <p class="note">Time is from the request’s arrival to its answer, summed. Watches and streams last as long as their clients want: they are counted when they begin, and have no time. Refused requests{parts.length > 0 && ', what of the time the API server spent in etcd, in authentication and authorization, in queues and in webhooks,'}{sized && ' and what it sent'} are those of the whole run.{parts.length > 0 && ' It does not time what it writes to etcd.'}</p>
    </>
  )
}

const places = [{ key: 'etcd', label: 'in etcd' }, { key: 'auth', label: 'until allowed' }, { key: 'queued', label: 'queued' }, { key: 'webhooks', label: 'in webhooks' }] as const

const value = (x: RequestRow, by: By): number => (by === 'mean' ? x.seconds / x.count : x[by])

const height = 220
const pad = { left: 58, right: 12, top: 10, bottom: 30 }

/** Time against count, both by factors of ten: far right many, high up slow. */
function Scatter({ rows, colour }: { rows: readonly RequestRow[]; colour: (agent: string) => string }) {
  const dots = rows.filter((r) => !r.long && r.seconds > 0)
  if (dots.length < 2) return null
  const width = 760
  const decades = (xs: number[]): [number, number] => {
    const a = Math.floor(Math.log10(Math.min(...xs)))
    return [a, Math.max(a + 1, Math.ceil(Math.log10(Math.max(...xs))))]
  }
  const [x0, x1] = decades(dots.map((d) => d.count))
  const [y0, y1] = decades(dots.map((d) => d.seconds))
  const x = (v: number) => pad.left + ((Math.log10(v) - x0) / (x1 - x0)) * (width - pad.left - pad.right)
  const y = (v: number) => height - pad.bottom - ((Math.log10(v) - y0) / (y1 - y0)) * (height - pad.top - pad.bottom)
  const ticks = (a: number, b: number) => Array.from({ length: b - a + 1 }, (_, i) => 10 ** (a + i))
  return (
    <figure class="chart scatter">
      <figcaption><span class="title">Time against count</span><span class="unit">up: seconds in all; right: requests</span></figcaption>
      <div class="scroll" tabIndex={0}><svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label="time of all requests against their number, a dot for each client, verb and resource; the table below holds the same data">
        {ticks(x0, x1).map((t, i, all) => <g key={`x${t}`}><line x1={x(t)} x2={x(t)} y1={pad.top} y2={height - pad.bottom} class="gridline" /><text x={x(t)} y={height - 12} text-anchor={i === all.length - 1 ? "end" : "middle"}>{num(t)}</text></g>)}
        {ticks(y0, y1).map((t) => <g key={`y${t}`}><line x1={pad.left} x2={width - pad.right} y1={y(t)} y2={y(t)} class="gridline" /><text x={pad.left - 6} y={y(t) + 4} text-anchor="end">{num(t)} s</text></g>)}
        {dots.map((d, i) => (
          <circle key={i} cx={x(d.count)} cy={y(d.seconds)} r={5} fill={colour(d.agent)} fill-opacity={0.8}><title>{`${d.agent} ${d.verb} ${d.resource}: ${d.count} requests, ${num(d.seconds)} s, mean ${num((1000 * d.seconds) / d.count)} ms`}</title></circle>
        ))}
      </svg></div>
    </figure>
  )
}
