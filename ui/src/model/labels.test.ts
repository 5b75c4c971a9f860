import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apart } from './labels.ts'

test('labels that would cover each other go below, the one further right stays', () => {
  assert.deepEqual(apart([{ left: 100, right: 200, y: 10 }, { left: 110, right: 210, y: 10 }, { left: 105, right: 190, y: 12 }], 16), [26, 10, 42])
})

test('labels that stand apart stay where they are', () => {
  const labels = [{ left: 0, right: 50, y: 10 }, { left: 60, right: 90, y: 10 }, { left: 0, right: 50, y: 40 }]
  assert.deepEqual(apart(labels, 16), [10, 10, 40])
  assert.deepEqual(apart([], 16), [])
})
