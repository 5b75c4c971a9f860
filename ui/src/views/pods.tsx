// The slowest pods, each with its way as a waterfall.
import { useMemo, useState } from 'preact/hooks'
import type { Round } from '../recording.ts'
import { podRows, type PodRow } from '../model/pods.ts'
import { pattern, type Range } from '../model/flame/tree.ts'
import { duration, num, value } from '../model/format.ts'
import { stageColour } from '../model/colour.ts'
import { text as words, useKept } from './address.ts'
import { Swatch } from './chart.tsx'
import { useColour } from './theme.ts'

const few = 15
const legs = [['created', 'to be created', 'controller'], ['bound', 'to be scheduled', 'decide'], ['running', 'to be started', 'start']] as const

export function Pods({ rounds, ranges }: { rounds: readonly Round[]; ranges: readonly (Range | null)[] }) {
  const [picked, pick] = useState(0)
  const at = Math.min(picked, rounds.length - 1)
  const r = rounds[at]
  const range = ranges[at] ?? null
  const [text, setText] = useKept('pq', '', words)
  const [all, setAll] = useState(false)
  const colour = useColour()
  const rows = useMemo(() => (r ? podRows(r.pods, range) : []), [r, range])
  if (!r || r.pods.names.length === 0) return <p class="missing">No pods were seen.</p>
  const wanted = pattern(text)
  const list = rows.filter((p) => !wanted || wanted.test(`${p.name} ${p.node}`))
  const shown = all ? list.slice(0, 500) : list.slice(0, few)
  const from = Math.min(...shown.map((p) => p.asked ?? 0))
  const to = Math.max(from + 0.1, ...shown.map((p) => p.running ?? p.bound ?? p.created ?? p.asked ?? 0))
  const x = (t: number) => `${(100 * (t - from)) / (to - from)}%`
  return (
    <>
      <div class="controls">
        {rounds.length > 1 && <span class="choice" role="group" aria-label="Round">{rounds.map((v, i) => <button type="button" class="switch" key={i} aria-pressed={i === at} onClick={() => pick(i)}>{v.name}</button>)}</span>}
        <label>Filter <input type="search" value={text} spellcheck={false} placeholder="pod or node" onInput={(e) => setText(e.currentTarget.value)} /></label>
        <output>{list.length} pods{range && `, on their way within ${num(range[0])}–${num(range[1])} s`}, the slowest first{r.pods.left > 0 && `; ${r.pods.left} faster ones are only in the recording`}</output>
      </div>
      <p class="note kinds">{legs.map(([, label, stage]) => <span key={stage}><Swatch colour={colour(stageColour(stage))} /> {label}</span>)}<span>from {duration(Math.round(from * 10) / 10)} to {duration(Math.round(to * 10) / 10)}</span></p>
      <div class="scroll" tabIndex={0}>
        <table class="grid pods">
          <thead><tr><th scope="col">Pod</th><th scope="col">Node</th><th scope="col" class="way">Its way</th><th scope="col" class="n">asked at</th>{legs.map(([, label]) => <th scope="col" class="n" key={label}>{label}</th>)}<th scope="col" class="n">in all, s</th></tr></thead>
          <tbody>
            {shown.map((p) => (
              <tr key={p.name}>
                <th scope="row">{p.name}</th><td>{p.node || '–'}</td>
                <td class="way"><span class="waybar">{bars(p).map(([a, b, stage]) => <i key={stage} style={{ left: x(a), width: `${(100 * (b - a)) / (to - from)}%`, background: colour(stageColour(stage)) }} />)}</span></td>
                <td class="n">{value(p.asked)}</td>
                {legs.map(([key], i) => <td class="n" key={key}>{value(between(i === 0 ? p.asked : p[legs[i - 1]![0]], p[key]))}</td>)}
                <td class="n">{p.running === null ? <span class="warn">never ran</span> : value(between(p.asked, p.running))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : list.length > 500 ? 'the first 500' : `all ${list.length}`}</button>}
    </>
  )
}

const between = (a: number | null, b: number | null): number | null => (a === null || b === null ? null : b - a)

function bars(p: PodRow): [number, number, string][] {
  const out: [number, number, string][] = []
  let before = p.asked
  for (const [key, , stage] of legs) {
    const t = p[key]
    if (before !== null && t !== null) out.push([before, Math.max(before, t), stage])
    before = t ?? before
  }
  return out
}
