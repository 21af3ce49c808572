"""Four tasks, one a kind, and the flags of their evaluation."""

import json

FLAGS = {
    'task_dir': '', 'tasks': [], 'visits': [], 'shots': [], 'length_bins': [], 'seeds': 1, 'limit': 0, 'room': 96,
    'new_tokens': 4, 'again': False, 'pack': '',
}  # fmt: skip
HEAD = 'task,file,icl_type,num_fewshot,random_baseline,continuation_delimiter\n'
ROWS = {
    'choice': [{'query': f'{i} and one make', 'choices': [str(i + 1), 'none', 'ten'], 'gold': 0} for i in range(7)],
    'schema': [{'context_options': [f'x{i} or', f'y{i} or'], 'continuation': 'so.', 'gold': i % 2} for i in range(5)],
    'next': [{'context': f'count {i}', 'continuation': f'{i}', 'category': 'eo'[i % 2]} for i in range(6)],
    'say': [{'context': f'what is {i}', 'answer': f'{i}', 'aliases': [f'no {i}']} for i in range(4)],
}
KINDS = {
    'choice': 'multiple_choice',
    'schema': 'schema',
    'next': 'language_modeling',
    'say': 'generation_task_with_answers',
}
CHANCES = {'choice': 33.3, 'schema': 50, 'next': 0, 'say': 0}


def lines_of(rows):
    return ''.join(json.dumps(row) + '\n' for row in rows)
