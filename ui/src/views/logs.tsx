// What the components' logs say: known events, and forms of lines.
import { useMemo, useState } from 'preact/hooks'
import type { Round } from '../recording.ts'
import { logRows } from '../model/pods.ts'
import { pattern, type Range } from '../model/flame/tree.ts'
import { num, value } from '../model/format.ts'
import { componentColour } from '../model/colour.ts'
import { flag, text as words, useKept } from './address.ts'
import { Swatch } from './chart.tsx'
import { useColour } from './theme.ts'

const few = 15
const severities: Record<string, string> = { I: 'info', W: 'warning', E: 'error', F: 'fatal', D: 'debug' }

export function Logs({ rounds, ranges }: { rounds: readonly Round[]; ranges: readonly (Range | null)[] }) {
  const [picked, pick] = useState(0)
  const at = Math.min(picked, rounds.length - 1)
  const r = rounds[at]
  const range = ranges[at] ?? null
  const [text, setText] = useKept('lq', '', words)
  const [loud, setLoud] = useKept('loud', false, flag)
  const [all, setAll] = useState(false)
  const colour = useColour()
  const rows = useMemo(() => (r ? logRows(r.logs, range) : []), [r, range])
  if (!r || r.logs.length === 0) return <p class="missing">No logs were recorded.</p>
  const wanted = pattern(text)
  const list = rows.filter((x) => (!loud || x.kind !== '' || x.severity !== 'I') && (!wanted || wanted.test(`${x.component} ${x.kind} ${x.text} ${x.example}`)))
  return (
    <>
      <div class="controls">
        {rounds.length > 1 && <span class="choice" role="group" aria-label="Round">{rounds.map((v, i) => <button type="button" class="switch" key={i} aria-pressed={i === at} onClick={() => pick(i)}>{v.name}</button>)}</span>}
        <label>Filter <input type="search" value={text} spellcheck={false} placeholder="text or regular expression" onInput={(e) => setText(e.currentTarget.value)} /></label>
        <button type="button" class="switch" aria-pressed={loud} onClick={() => setLoud(!loud)}>warnings, errors and known events only</button>
        <output>{list.length} forms{range && `, seen around ${num(range[0])}–${num(range[1])} s`}</output>
      </div>
      <div class="scroll" tabIndex={0}>
        <table class="grid logs">
          <thead><tr><th scope="col">Line</th><th scope="col">Component</th><th scope="col">Kind</th><th scope="col" class="n">count</th><th scope="col" class="n">time told, s</th><th scope="col" class="n">first, s</th><th scope="col" class="n">last, s</th></tr></thead>
          <tbody>
            {(all ? list : list.slice(0, few)).map((x, i) => (
              <tr key={i}>
                <th scope="row"><code>{x.text}</code>{x.example && x.example !== x.text && <small><code>{x.example}</code></small>}</th>
                <td><Swatch colour={colour(componentColour(x.component))} /> {x.component}</td>
                <td class={x.severity === 'E' || x.severity === 'F' || x.severity === 'W' ? 'loud' : ''}>{x.kind || (severities[x.severity] ?? x.severity)}</td>
                <td class="n">{x.count}</td><td class="n">{value(x.seconds)}</td><td class="n">{value(x.first)}</td><td class="n">{value(x.last)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${list.length}`}</button>}
      <p class="note">Lines of one form differ only where &lt;…&gt; stands. Counts are of the whole recording; a selection keeps the forms that were seen around it.</p>
    </>
  )
}
