import { test } from 'node:test';
import { playSqlite, type Database } from './sqlite.js';

const major = Number(process.versions.node.split('.')[0]);
const skip = major < 22 ? 'node:sqlite needs Node 22; scripts/check-clients runs this file with a later Node' : false;

test('rows and outcome are one commit in node:sqlite, whatever boundary the worker dies at', { skip }, async () => {
  const { DatabaseSync } = await import('node:sqlite' as string) as { DatabaseSync: new (path: string) => Database };
  await playSqlite(path => new DatabaseSync(path));
});
