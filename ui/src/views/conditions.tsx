// Under what conditions the rounds ran: harness cost, gaps, machine, flags.
import type { Round } from '../recording.ts'
import { duration, moment, num, percent } from '../model/format.ts'

export function Conditions({ rounds }: { rounds: readonly Round[] }) {
  return (
    <div class={`rounds of${Math.min(rounds.length, 3)}`}>
      {rounds.map((r, i) => <One key={i} r={r} titled={rounds.length > 1} />)}
    </div>
  )
}

function One({ r, titled }: { r: Round; titled: boolean }) {
  const f = r.recording
  return (
    <div class="round">
      <h3 class={titled ? '' : 'unseen'}>{r.name}</h3>
      <dl class="facts">
        <div><dt>Recording</dt><dd><code>{f.id}</code> · {f.name} · {f.status}{f.endReason && `: ${f.endReason}`}</dd></div>
        <div><dt>Ran</dt><dd>{moment(f.started)}, {duration(Math.round(f.seconds))}</dd></div>
        <div><dt>Load</dt><dd>{num(f.pods)} pods, {f.load}, {f.nodes} {f.simulated ? 'simulated ' : ''}nodes</dd></div>
        <div><dt>Harness</dt><dd>{r.harness.measured ? `${num(r.harness.cpuSeconds)} CPU-s, ${num(r.harness.perPodMs)} ms a pod, ${percent(r.harness.share)} of harness and control plane` : 'not measured'}</dd></div>
        <div><dt>Settings</dt><dd>{f.settings.length ? <code class="lines">{f.settings.map((s) => <span key={s}>--set {s}</span>)}</code> : 'none beside the profile'}</dd></div>
      </dl>
      {r.warnings.length > 0 && <div class="reasons unknown"><h4>Warnings</h4><ul>{r.warnings.map((w) => <li key={w}>{w}</li>)}</ul></div>}
      {r.gaps.length > 0 && (
        <div class="reasons unknown"><h4>Not recorded</h4><dl>{r.gaps.map((g, i) => <div key={i}><dt>{g.id}</dt><dd>{g.why}</dd></div>)}</dl></div>
      )}
      <details>
        <summary>Machine</summary>
        <dl class="facts">{f.machine.map((m) => <div key={m.label}><dt>{m.label}</dt><dd>{m.value}</dd></div>)}</dl>
      </details>
      <details>
        <summary>Flags of each component</summary>
        {f.components.map((c, i) => (
          <div key={i} class="flags">
            <h4>{c.component} <small>{c.version}{c.quota > 0 && ` · limited to ${num(c.quota)} cores`}</small></h4>
            {c.set.length > 0 && <p>Differs from the profile: <code class="lines">{c.set.map((s) => <span key={s}>{s}</span>)}</code></p>}
            <code class="lines">{c.args.map((a, j) => <span key={j}>{a}</span>)}</code>
          </div>
        ))}
      </details>
      <details>
        <summary>Phases and observers</summary>
        <table>
          <thead><tr><th scope="col">Phase</th><th scope="col">Kind</th><th scope="col" class="n">from, s</th><th scope="col" class="n">to, s</th></tr></thead>
          <tbody>{f.phases.map((p, i) => <tr key={i}><td>{p.name}</td><td>{p.kind}</td><td class="n">{num(p.from)}</td><td class="n">{num(p.to)}</td></tr>)}</tbody>
        </table>
        <table>
          <thead><tr><th scope="col">Observer</th><th scope="col" class="n">every, s</th><th scope="col" class="n">samples</th><th scope="col" class="n">CPU-s</th></tr></thead>
          <tbody>{f.observers.map((o, i) => <tr key={i} title={o.note}><td>{o.name}</td><td class="n">{o.interval > 0 ? num(o.interval) : '–'}</td><td class="n">{o.samples}</td><td class="n">{num(o.cpuSeconds)}</td></tr>)}</tbody>
        </table>
      </details>
    </div>
  )
}
