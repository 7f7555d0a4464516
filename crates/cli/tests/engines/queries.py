"""Runs the queries of docs/queries.md on an export: queries.py QUERIES TABLES X.

Prints one JSON object: the rows of each query, by its number.
"""

import json
import os
import re
import sys

import duckdb

text = open(sys.argv[1]).read()
os.chdir(sys.argv[2])
connection = duckdb.connect()
parts = re.split(r"^## (\d+)\. .*$", text, flags=re.M)
block = re.compile(r"```sql\n(.*?)```", re.S)
connection.execute(block.search(parts[0]).group(1))
answers = {}
for number, part in zip(parts[1::2], parts[2::2]):
    query = block.search(part).group(1)
    given = {"x": int(sys.argv[3])} if "$x" in query else None
    result = connection.execute(query, given)
    names = [column[0] for column in result.description]
    answers[number] = [dict(zip(names, row)) for row in result.fetchall()]
json.dump(answers, sys.stdout, default=str)
