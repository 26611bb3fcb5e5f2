import { test } from 'node:test';
import BetterSqlite3 from 'better-sqlite3';
import { playSqlite } from './sqlite.js';

test('rows and outcome are one commit in better-sqlite3, whatever boundary the worker dies at', async () => {
  await playSqlite(path => new BetterSqlite3(path));
});
