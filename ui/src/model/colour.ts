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
