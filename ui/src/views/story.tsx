// The rounds as a story, and what each conclusion rests on.
import { useState } from 'preact/hooks'
import type { PageFinding, Reason, Round } from '../recording.ts'
import { change, num, percent, value } from '../model/format.ts'
import { common, idle, placeOf } from '../model/story.ts'
import type { Asked } from './flame.tsx'
import { roundColour } from '../model/colour.ts'
import { useColour } from './theme.ts'

export function Story({ rounds, all }: { rounds: readonly Round[]; all: readonly Round[] }) {
  const colour = useColour()
  const main = (r: Round) => r.headline[0] // pods a second, or CPU where there were none
  return (
    <ol class={`story of${Math.min(rounds.length, 4)}`}>
      {rounds.map((r, i) => {
        const v = main(r)
        const before = i > 0 ? main(rounds[i - 1]!) : undefined
        return (
          <li key={i} style={{ borderTopColor: colour(roundColour(i)) }}>
            {rounds.length > 1 && <h2>{r.name}{r.assessed && !r.valid && <em class="bad"> not valid</em>}</h2>}
            {r.change.length > 0 ? <Settings label="Changed" set={r.change} />
              : i === 0 && <p class="asis">{r.recording.profile ? `profile ${r.recording.profile}` : 'as it was'}{r.recording.settings.map((s) => <code key={s}> --set {s}</code>)}</p>}
            <p class="big">
              <a href="#time">{v?.value != null ? num(v.value) : '–'}</a> <span>{v && idle(r) ? `${v.unit}: ${v.label.toLowerCase()}` : v?.unit}</span>
              {before?.value != null && v?.value != null && <b>{change(before.value, v.value)}</b>}
            </p>
            {rounds.length > 1 && <p class="verdict">{r.verdict}</p>}
            {dosesOf(all, r).map((d) => (
              <p class="small" key={d.name}><b>Dose tried</b> {d.change.map((s) => <code key={s}>--set {s} </code>)}{d.prediction && `predicted ${d.prediction}`}{d.outcome && `; measured ${d.outcome}`}</p>
            ))}
            {r.prediction && <p class="small"><b>Predicted</b> {r.prediction}</p>}
            {r.outcome && <p class="small"><b>Measured</b> {r.outcome}</p>}
            {i === rounds.length - 1 && r.findings[0] && r.findings[0].set.length > 0 && <Settings label="Try" set={r.findings[0].set} />}
          </li>
        )
      })}
    </ol>
  )
}

/** The doses that were tried on the way to r. */
function dosesOf(all: readonly Round[], r: Round): Round[] {
  const out: Round[] = []
  for (let i = all.indexOf(r) - 1; i >= 0 && all[i]!.dose; i--) out.unshift(all[i]!)
  return out
}

/** --set lines, ready to copy. */
export function Settings({ label, set }: { label: string; set: readonly string[] }) {
  const text = set.map((s) => `--set ${s}`).join(' ')
  const [done, setDone] = useState(false)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      setDone(true)
      setTimeout(() => setDone(false), 1500)
    } catch {
      // No clipboard here: the text can still be selected.
    }
  }
  return (
    <div class="settings">
      <span class="label">{label}</span>
      <code>{set.map((s) => <span key={s}>--set {s}</span>)}</code>
      <button type="button" onClick={() => void copy()} aria-label={`copy ${text}`}>{done ? 'copied' : 'copy'}</button>
    </div>
  )
}

export function Conclusions({ rounds, onStage, onFunction }: { rounds: readonly Round[]; onStage: (r: Round, stage: string) => void; onFunction: (a: Asked) => void }) {
  return (
    <div class={`rounds of${Math.min(rounds.length, 3)}`}>
      {rounds.map((r, i) => (
        <div class="round" key={i}>
          <h3 class={rounds.length > 1 ? '' : 'unseen'}>{r.name}</h3>
          {!r.assessed && <p class="missing">Not diagnosed: the curves below are what was measured, without a verdict.</p>}
          {r.invalid.length > 0 && (
            <div class="invalid"><b>Not valid. These numbers must not be used:</b><ul>{r.invalid.map((s) => <li key={s}>{s}</li>)}</ul></div>
          )}
          {r.assessed && r.findings.length === 0 && <p class="nothing">Nothing held it back that this run could show.</p>}
          {r.findings.map((f, j) => <Finding key={j} f={f} onShow={() => onStage(r, f.stage)} onFunction={onFunction} />)}
          <Reasons title="Not assessed" list={r.notAssessed} class="unknown" />
          <Reasons title="Ruled out" list={r.ruledOut} class="out" />
        </div>
      ))}
      <LeftOut rounds={rounds} />
    </div>
  )
}

function Finding({ f, onShow, onFunction }: { f: PageFinding; onShow: () => void; onFunction: (a: Asked) => void }) {
  return (
    <article class={`finding ${f.class}`}>
      <h4>{f.summary}</h4>
      <p class="tags">
        <span class="tag">{f.class}</span><span class={`tag ${f.grade}`}>{f.grade}</span>
        {f.stage && <span class="tag">stage {f.stage}</span>}
        {f.explains > 0 && <span class="tag">explains {percent(f.explains)} of the waiting</span>}
        <button type="button" class="show" onClick={onShow} title="selects the seconds in which most pods waited there">show when</button>
      </p>
      {f.cause && <p>{f.cause}</p>}
      {f.codePath && <p class="small"><code>{f.codePath}</code> <button type="button" onClick={() => onFunction({ component: f.component, function: f.codePath })}>in the flame graph</button></p>}
      {f.evidence.length > 0 && (
        <table class="evidence">
          <thead><tr><th scope="col">Evidence</th><th scope="col" class="n">Value</th></tr></thead>
          <tbody>
            {f.evidence.map((e, i) => (
              <tr key={i}><td title={e.ref}><a href={`#${placeOf(e.kind, e.ref)}`}>{e.text || e.ref}</a></td><td class="n">{value(e.value, e.unit)}</td></tr>
            ))}
          </tbody>
        </table>
      )}
      {f.advice && <p class="advice"><b>What to change.</b> {f.advice}</p>}
      {f.set.length > 0 && <Settings label="Try" set={f.set} />}
      {f.next && <p class="small"><b>Then</b> {f.next}</p>}
      {f.refutedBy && <p class="small"><b>Refuted by</b> {f.refutedBy}</p>}
      {f.hitRate && <p class="small"><b>Findings so {f.grade}</b> were {f.hitRate}</p>}
    </article>
  )
}

function Reasons({ title, list, class: c }: { title: string; list: readonly Reason[]; class: string }) {
  if (list.length === 0) return null
  return (
    <div class={`reasons ${c}`}>
      <h4>{title}</h4>
      <dl>{list.map((r) => <div key={r.id}><dt>{r.id}</dt><dd>{r.why}</dd></div>)}</dl>
    </div>
  )
}

function LeftOut({ rounds }: { rounds: readonly Round[] }) {
  const { all, only } = common(rounds.map((r) => r.leftOut))
  if (all.length === 0 && only.every((l) => l.length === 0)) return null
  return (
    <div class="leftout">
      <h4>What the simulation leaves out</h4>
      <ul>
        {all.map((s) => <li key={s}>{s}</li>)}
        {only.flatMap((l, i) => l.map((s) => <li key={`${i} ${s}`}>{rounds[i]!.name}: {s}</li>))}
      </ul>
    </div>
  )
}
