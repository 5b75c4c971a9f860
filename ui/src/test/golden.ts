// Snapshots: JSON files beside the tests, rewritten with UPDATE=1.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'

export function matches(name: string, got: unknown): void {
  const file = `src/test/golden/${name}.json` // npm runs tests in ui/
  const text = JSON.stringify(got, null, 1) + '\n'
  if (process.env['UPDATE']) {
    mkdirSync('src/test/golden', { recursive: true })
    writeFileSync(file, text)
  }
  assert.equal(text, readFileSync(file, 'utf8'), `differs from ${file}; UPDATE=1 npm test rewrites it`)
}
