/** Where a label would stand: from left to right, around the height y. */
export interface Label {
  left: number
  right: number
  y: number
}

/** The heights at which labels of that height do not cover each other: who is further right stays, others go below. */
export function apart(labels: readonly Label[], height: number): number[] {
  const ys = labels.map((l) => l.y)
  const order = labels.map((_, i) => i).sort((a, b) => labels[b]!.right - labels[a]!.right)
  const placed: number[] = []
  for (const i of order) {
    const covers = () => placed.filter((j) => labels[i]!.left < labels[j]!.right && labels[j]!.left < labels[i]!.right && Math.abs(ys[i]! - ys[j]!) < height)
    for (let blocked = covers(); blocked.length > 0; blocked = covers()) ys[i] = Math.max(...blocked.map((j) => ys[j]!)) + height
    placed.push(i)
  }
  return ys
}
