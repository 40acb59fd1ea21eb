"""Chat templates as transformers renders them: jinja2's sandbox with its settings, filters and globals."""
import datetime
import functools
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %}: renders its body."""
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return body


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


@functools.lru_cache(maxsize=64)
def compiled(source):
    return environment().from_string(source)


def render(source, case, special_tokens):
    """Returns ("text", rendered) or ("error", message)."""
    try:
        variables = dict(special_tokens, **case.get("options", {}))
        if case.get("now") is not None:
            now = datetime.datetime.fromtimestamp(case["now"], datetime.timezone.utc)
            variables["strftime_now"] = now.strftime
        return "text", compiled(source).render(messages=case["messages"], tools=case.get("tools"), documents=None,
                                               add_generation_prompt=case.get("add_generation_prompt", False), **variables)
    except Exception as error:  # Whatever Python raises is a refusal; the kinds have no counterpart.
        return "error", f"{type(error).__name__}: {error}"
