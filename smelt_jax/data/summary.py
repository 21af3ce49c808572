"""What `smelt pack` prints of a manifest."""

from rich.table import Table

from smelt_jax.data.manifest import SPLITS, Manifest


def tables(manifest: Manifest) -> list[Table]:
    """Both splits by domain and source, then the pack as a whole."""
    result = []
    for name in SPLITS:
        split = manifest.split(name)
        table = Table(title=f'{name}: {split.rows:,} rows of {manifest.row_tokens} tokens', show_footer=True)
        for title, footer in [
            ('domain', 'all'),
            ('source', ''),
            ('documents', f'{split.documents:,}'),
            ('tokens', f'{split.tokens:,}'),
            ('bytes', f'{split.bytes:,}'),
            ('bytes/token', f'{split.bytes / split.tokens:.2f}' if split.tokens else ''),
        ]:
            table.add_column(
                title, footer, justify='left' if title in ('domain', 'source') else 'right', overflow='fold'
            )
        for source in split.sources:
            if source.documents:
                counts = [f'{value:,}' for value in (source.documents, source.tokens, source.bytes)]
                table.add_row(source.domain, source.name, *counts, f'{source.bytes / source.tokens:.2f}')
        result.append(table)
    whole = Table(title=f'pack {manifest.fingerprint[:12]}', show_header=False)
    for key, value in [
        ('tokenizer', f'{manifest.tokenizer}, {manifest.vocab:,} tokens, {manifest.tokenizer_fingerprint[:12]}'),
        ('mean attended keys T̄', ', '.join(f'{manifest.split(s).mean_attended_keys:.1f} {s}' for s in SPLITS)),
        ('duplicates dropped', f'{manifest.dropped_duplicates:,}'),
        ('empty documents', f'{manifest.empty:,}'),
        ('beyond max_bytes', f'{manifest.over_budget:,}'),
        ('invalid UTF-8 replaced', f'{manifest.replaced_utf8:,}'),
        ('unreadable local files', f'{manifest.skipped:,}'),
    ]:
        whole.add_row(key, value)
    return [*result, whole]
