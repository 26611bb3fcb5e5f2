import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { TestServer } from '../src/testing.js';

interface Program { key: string; status?: string; result?: string[]; applied: { [name: string]: number }; deliver?: { [token: string]: number[] } }

test('programs of the language of the Rust tests end as they should', async () => {
  await using server = await TestServer.start();
  const semel = server.client();
  const lines = readFileSync(new URL('../../../../../programs.jsonl', import.meta.url), 'utf8').trim().split('\n');
  const programs = lines.map(line => JSON.parse(line) as Program);
  const player = spawn('node', [new URL('programs.js', import.meta.url).pathname], { env: { ...process.env, SEMEL_URL: server.url }, stdio: ['pipe', 'pipe', 'inherit'] });
  player.stdin.end(`${lines.join('\n')}\n`);
  const delivered = programs.flatMap(({ deliver }) => Object.entries(deliver ?? {})).map(async ([token, payloads]) => {
    while ((await semel.hook(token)) === undefined) await new Promise(resolve => setImmediate(resolve));
    for (const payload of payloads) await semel.deliver(token, payload, { id: String(payload) });
  });
  const keys = new Map<string, Set<string>>();
  const ends = new Map<string, { status: string; result?: string[] }>();
  for await (const line of createInterface({ input: player.stdout })) {
    const told = JSON.parse(line) as { applied?: string; key: string; ended?: string; status: string; result?: string[] };
    if (told.applied !== undefined) keys.set(told.applied, (keys.get(told.applied) ?? new Set()).add(told.key));
    if (told.ended !== undefined) ends.set(told.ended, told);
  }
  await Promise.all(delivered);
  semel.close();
  const expected = new Map<string, number>();
  for (const { key, status = 'COMPLETED', result, applied } of programs) {
    assert.deepEqual([ends.get(key)?.status, ends.get(key)?.result], [status, result], key);
    for (const [name, times] of Object.entries(applied)) expected.set(name, (expected.get(name) ?? 0) + times);
  }
  assert.deepEqual(Object.fromEntries([...keys].map(([name, all]) => [name, all.size])), Object.fromEntries([...expected].sort(([a], [b]) => [...keys.keys()].indexOf(a) - [...keys.keys()].indexOf(b))));
});
