// Top functions of a component, rounds side by side.
import { Fragment } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { Round } from '../recording.ts'
import { num, percent, splitFunction, value } from '../model/format.ts'
import { componentColour } from '../model/colour.ts'
import { functions, profiled, type By } from '../model/story.ts'
import { Swatch } from './chart.tsx'
import type { Asked } from './flame.tsx'
import { useColour } from './theme.ts'

const few = 15

export function Functions({ rounds, onFunction }: { rounds: readonly Round[]; onFunction: (a: Asked) => void }) {
  const colour = useColour()
  const components = useMemo(() => profiled(rounds), [rounds])
  const busiest = useMemo(() => components.toSorted((a, b) => cpuOf(rounds, b) - cpuOf(rounds, a))[0], [rounds, components])
  const [picked, pick] = useState<string | undefined>(undefined)
  const [by, setBy] = useState<By>('self')
  const [all, setAll] = useState(false)
  const component = picked ?? busiest
  const rows = useMemo(() => (component ? functions(rounds, component, by) : []), [rounds, component, by])
  if (!component) return <p class="missing">No CPU profile was recorded.</p>
  const head = (key: By, label: string, first = false) => (
    <th scope="col" class={first ? 'n first' : 'n'} aria-sort={by === key ? 'descending' : 'none'}>
      <button type="button" class="sort" onClick={() => setBy(key)}>{label}{by === key && ' ▾'}</button>
    </th>
  )
  return (
    <>
      <div class="tabs" role="group" aria-label="Component">
        {components.map((c) => (
          <button type="button" key={c} aria-pressed={c === component} onClick={() => pick(c)}>
            <Swatch colour={colour(componentColour(c))} />{c}
          </button>
        ))}
      </div>
      <div class="scroll" tabIndex={0}>
        <table class="grid functions">
          <thead>
            <tr><th rowSpan={2} scope="col">Function</th>
              {rounds.map((r, i) => {
                const t = r.functions.find((x) => x.component === component)
                return <th key={i} colSpan={3} scope="colgroup" class="mid">{r.name}{t && <small>{num(t.cpuSeconds)} CPU-s in {num(t.seconds)} s</small>}</th>
              })}
            </tr>
            <tr>{rounds.map((_, i) => <Fragment key={i}>{head('self', 'self', true)}{head('cum', 'cum.')}{head('perMs', 'ms/pod')}</Fragment>)}</tr>
          </thead>
          <tbody>
            {(all ? rows : rows.slice(0, few)).map((row) => {
              const [path, name] = splitFunction(row.key)
              return (
                <tr key={row.key}>
                  <th scope="row"><button type="button" class="sort" title="show in the flame graph" onClick={() => onFunction({ component, function: row.key })}><code><span class="path">{path}</span>{name}</code></button></th>
                  {row.cells.map((f, i) => f
                    ? <Fragment key={i}><td class="n first">{percent(f.self)}</td><td class="n">{percent(f.cum)}</td><td class="n">{value(f.perMs)}</td></Fragment>
                    : <td key={i} colSpan={3} class="unmeasured first">not among the top</td>)}
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      {rows.length > few && <button type="button" class="more" onClick={() => setAll(!all)}>{all ? `only the first ${few}` : `all ${rows.length}`}</button>}
      <p class="note">Shares are of the component's own CPU. Cumulative includes callees; CPU ms per pod is cumulative, over the pods that started while the profile ran.</p>
    </>
  )
}

const cpuOf = (rounds: readonly Round[], component: string): number =>
  Math.max(...rounds.map((r) => r.functions.find((t) => t.component === component)?.cpuSeconds ?? 0))
