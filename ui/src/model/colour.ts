// One colour per component and stage, everywhere. Hues are told apart with any
// of the common colour deficiencies (checked against deuteranopia and
// protanopia); what belongs to us is muted, what is measured is not.

export type Colour = readonly [light: string, dark: string]

const components: Record<string, Colour> = {
  etcd: ['#e08a1e', '#f0a544'],
  'kube-apiserver': ['#2f6db5', '#5b9be0'],
  'kube-controller-manager': ['#16917b', '#3cbfa6'],
  'kube-scheduler': ['#ad4a8b', '#dc85bd'],
  'kubedyno-hollow': ['#98a2b0', '#79838f'],
  'kubedyno-load': ['#bdac86', '#8f8264'],
  kubedyno: ['#5f6974', '#a9b3bf'],
  'kubedyno-keeper': ['#7f7390', '#9d90b0'],
  other: ['#d6dadf', '#464d56'],
}
const spare: Colour[] = [['#7a6bb8', '#a99be6'], ['#7d8f2f', '#b3c65a'], ['#b0503a', '#e58a72']]

export function componentColour(name: string): Colour {
  const known = components[name]
  if (known) return known
  if (name.startsWith('kubedyno')) return components['kubedyno']!
  let h = 0
  for (const c of name) h = (h * 31 + c.codePointAt(0)!) >>> 0
  return spare[h % spare.length]!
}

const stages: Record<string, Colour> = {
  submit: ['#bdac86', '#8f8264'],
  accept: ['#2f6db5', '#5b9be0'],
  controller: ['#16917b', '#3cbfa6'],
  queue: ['#dfb0cd', '#f0bfdc'],
  decide: ['#ad4a8b', '#dc85bd'],
  bind: ['#6f2a58', '#a84f89'],
  start: ['#98a2b0', '#79838f'],
  observe: ['#5f6974', '#a9b3bf'],
}
export const stageColour = (name: string): Colour => stages[name] ?? stages[name.split('+').at(-1)!] ?? components['other']!

const rounds: Colour[] = [
  ['#7c8794', '#98a2af'],
  ['#2f6db5', '#5b9be0'],
  ['#d9730d', '#f0a544'],
  ['#16917b', '#3cbfa6'],
  ['#ad4a8b', '#dc85bd'],
]
/** Baseline grey, then a hue a round. */
export const roundColour = (i: number): Colour =>
  i === 0 ? rounds[0]! : rounds[1 + ((i - 1) % (rounds.length - 1))]!

export const events: Record<'submitted' | 'created' | 'scheduled' | 'running', Colour> = {
  submitted: ['#98a2b0', '#79838f'],
  created: ['#16917b', '#3cbfa6'],
  scheduled: ['#ad4a8b', '#dc85bd'],
  running: ['#2f6db5', '#5b9be0'],
}

// Kinds of work, in few hues: what belongs together looks alike. Text stands on them.
const kinds: [name: string, colour: Colour, classes: readonly string[]][] = [
  ['memory', ['#f0b8a6', '#7d4536'], ['garbage collection', 'memory allocation', 'memory copies and maps']],
  ['Go runtime', ['#ddd3c2', '#574f42'], ['Go scheduler and timers', 'profiling', 'reflection', 'sorting', 'formatting and text', 'regular expressions and templates']],
  ['API requests', ['#abc9ee', '#2d5787'], ['admission', 'audit', 'authentication and authorization', 'priority and fairness', 'field ownership', 'validation', 'LIST', 'watch', 'storage client']],
  ['encoding', ['#a3dccf', '#1d6656'], ['protobuf', 'JSON and YAML', 'CBOR', 'deep copies and conversion']],
  ['etcd', ['#f2cf8c', '#7c5a1d'], ['write-ahead log', 'raft', 'bbolt', 'key-value store']],
  ['scheduling', ['#e4b9d5', '#773d62'], ['scheduler', 'scheduler plugin']],
  ['controllers', ['#c2dfa9', '#47672f'], ['controllers', 'informers and caches', 'events', 'client']],
  ['network', ['#ccc5ee', '#514887'], ['TLS and cryptography', 'compression', 'HTTP and gRPC', 'system calls and network']],
  ['observing', ['#eee79c', '#625c1d'], ['metrics', 'tracing', 'logging']],
  ['kernel', ['#c6d2de', '#44515f'], []],
  ['other', ['#e3e4e2', '#484c50'], []],
]
const kindOf = new Map(kinds.flatMap(([name, , classes]) => classes.map((c) => [c, name] as const)))

/** The kind of work that a class belongs to. */
export const workKind = (cls: string): string =>
  kindOf.get(cls) ?? (cls.startsWith('kernel') || cls === 'virtual machine guest' ? 'kernel' : 'other')
export const workKinds: readonly string[] = kinds.map(([name]) => name)
const kindColours = new Map(kinds.map(([name, colour]) => [name, colour]))
export const kindColour = (kind: string): Colour => kindColours.get(kind) ?? kindColours.get('other')!

/** A colour for a package, always the same one. */
export function packageColour(name: string): Colour {
  let h = 0
  for (const c of name) h = (h * 31 + c.codePointAt(0)!) >>> 0
  return kinds[h % (kinds.length - 1)]![1]
}

export const unchanged: Colour = ['#dcdfe2', '#454b52']
// Blue and orange are told apart with all common deficiencies; the steps by lightness, too.
const less: Colour[] = [['#bcd3ea', '#365676'], ['#83b0de', '#336ba3'], ['#4a8acb', '#3c8ad6']]
const more: Colour[] = [['#f3d3ae', '#75532d'], ['#efae63', '#a2671f'], ['#dd7f14', '#d9841f']]

/** The colour of a difference from -1, vanished, to 1, new. */
export function differenceColour(x: number): Colour {
  if (x === 0) return unchanged
  const steps = x < 0 ? less : more
  const a = Math.abs(x) // a third: half or twice as much
  return steps[a < 0.2 ? 0 : a < 0.5 ? 1 : 2]!
}
export const differenceSteps: readonly Colour[] = [...less.toReversed(), unchanged, ...more]

const heats: Colour[] = [['#dbe7f4', '#1f3247'], ['#b3cdea', '#29486b'], ['#7fabd9', '#366797'], ['#4a86c5', '#4f8fce'], ['#285f9f', '#82b7ee'], ['#14375f', '#c9e2fb']]
/** From few to many, 0 to 1; the steps differ in lightness. */
export const heatColour = (x: number): Colour => heats[Math.min(heats.length - 1, Math.max(0, Math.floor(x * heats.length)))]!

const clients: Colour[] = [
  ['#d9730d', '#f0a544'], ['#2f6db5', '#5b9be0'], ['#7a6bb8', '#a99be6'], ['#7d8f2f', '#b3c65a'], ['#b0503a', '#e58a72'], ['#3f8fa3', '#6cc3d8'],
]
/** A colour for the i-th of lines that have no colour of their own. */
export const lineColour = (i: number): Colour => [...clients, ...rounds.slice(3), ...spare.slice(1)][i % (clients.length + rounds.length - 3 + spare.length - 1)]!
export const otherClients = components['other']!
/** A client's colour: its component's where it is one, else the next. */
export function clientColour(agent: string, next: () => number): Colour {
  return components[agent] ?? clients[next() % clients.length]!
}

const inks = new Map<string, string>()
/** Black or white, whichever is easier to read on a colour. */
export function inkOn(fill: string): string {
  let ink = inks.get(fill)
  if (ink === undefined) {
    const [r, g, b] = [1, 3, 5].map((i) => {
      const v = parseInt(fill.slice(i, i + 2), 16) / 255
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
    }) as [number, number, number]
    inks.set(fill, ink = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#0c0f13' : '#ffffff')
  }
  return ink
}
