"""Small templates, each exercising one construct the way published chat templates use it, and larger ones in their style.
make_golden.py renders them with jinja2; the tests compare."""

HI = [{"role": "user", "content": "Hi"}]
TURNS = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "One\n\ntwo"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"},
         {"role": "user", "content": "caf\u00e9 \U0001f600"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "It's <b> & \"q\" \u00e9", "parameters": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}}}]
CALLS = [{"role": "user", "content": "w?"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo", "n": 2, "x": [1.5, None, True]}}}]},
         {"role": "tool", "content": "3 C", "tool_call_id": "c1"}]
DATA = {"s": " Ab\u00e9c ", "n": 7, "f": 2.5, "t": True, "e": "", "l": [3, 1, 2, 1], "w": ["b", "A", "c"], "d": {"b": 1, "a": "x", "items": 5}, "z": None,
        "rows": [{"k": "x", "v": 2, "on": True}, {"k": "y", "v": 1, "on": False}, {"k": "x", "v": 3}], "big": 1e20, "small": 1e-7, "neg": -7, "nest": {"a": {"b": [1, {"c": "deep"}]}}}

EXPRESSIONS = """
(n + 1) ~ '|' ~ (n - 1) ~ '|' ~ n * 2 ~ '|' ~ n / 2 ~ '|' ~ n // 2 ~ '|' ~ n % 4 ~ '|' ~ n ** 2
neg // 2 ~ ' ' ~ neg % 4 ~ ' ' ~ neg / 2 ~ ' ' ~ -n ~ ' ' ~ +n ~ ' ' ~ 2 ** 3 ** 2 ~ ' ' ~ -2 ** 2
f ~ ' ' ~ big ~ ' ' ~ small ~ ' ' ~ 1.0 ~ ' ' ~ 100000.0 ~ ' ' ~ 1e16 ~ ' ' ~ (0.1 + 0.2)
n > 3 and n < 10 or missing
1 < 2 < 3, 3 > 2 > 2, n == 7.0, t == 1, 'a' < 'b', [1, 2] < [1, 3]
n in l, 3 in l, 'b' in s, 'a' in d, 'zz' not in d, 3 not in l, '' in s
not n, not e, not z, not missing, not l
'a' if n > 3 else 'b'
'a' if n > 30
('a' if n > 30) is defined
missing
missing.x
missing['x']
missing + 'x'
missing ~ 'x'
missing is defined, missing is undefined, n is defined, z is defined, z is none, d.zz is defined
missing|default('q'), e|default('q'), e|default('q', true), z|default('q'), z|d('q', boolean=true)
s is string, n is string, n is number, f is number, t is number, n is integer, t is integer, f is float, t is boolean
d is mapping, l is mapping, l is sequence, d is sequence, s is sequence, n is sequence, missing is sequence, z is iterable or 0
l is iterable, s is iterable, d is iterable
t is true, t is false, n is true, (n > 3) is true, missing is false
n is odd, n is even, n is divisibleby 7, n is divisibleby(3)
n is eq 7, n is equalto(7), n is ne 7, n is gt 3, n is lt 3, n is ge 7, n is le 6, n is in [7], n is in([8])
'ab' is lower, 'AB' is upper, 'Ab' is lower, z is sameas none, t is sameas true, n is not none, n is not string
s|trim, s|upper, s|lower, s|trim|capitalize, 'hello wORLD it\\'s'|title, s|length, s|count
l|length, d|length, ''|length, missing|length
l|first, l|last, []|first, s|first, s|trim|last
l|join(','), l|join, w|join(', '), rows|map(attribute='k')|join('+'), d|join('/')
l|list, s|list, d|list, 'ab'|list
l|sort, w|sort, w|sort(case_sensitive=true), l|sort(reverse=true), rows|sort(attribute='v')|map(attribute='v')|list
l|unique|list, w|unique|list, rows|map(attribute='k')|unique|list
l|reverse|list, 'abc'|reverse, l|max, l|min, w|min
d|items|list, d.items()|list, d['items'], d.keys()|list, d.values()|list, d|dictsort, d.get('b'), d.get('q'), d.get('q', 9)
d|dictsort(by='value')
{'b': 2, 'A': 3, 'c': 1}|dictsort(by='value', reverse=true), {'b': 2, 'A': 3}|dictsort(true)
rows|selectattr('on')|list|length, rows|rejectattr('on')|list|length, rows|selectattr('k', 'equalto', 'x')|map(attribute='v')|list
rows|selectattr('on', 'defined')|list|length, l|select('gt', 1)|list, l|reject('equalto', 1)|list, l|select('odd')|list, [0, 1, '', 'a']|select|list
w|map('upper')|list, w|map('replace', 'b', 'q')|list, rows|map(attribute='on', default='?')|list
d|tojson, l|tojson, s|tojson, n|tojson, f|tojson, t|tojson, z|tojson, nest|tojson, ()|tojson, {}|tojson
nest|tojson(indent=2)
nest|tojson(indent=4)
[]|tojson(indent=2), {'a': []}|tojson(indent=1)
d|tojson(sort_keys=true), d|tojson(separators=(',', ':')), '\u00e9\U0001f600\\x7f\\x01'|tojson(ensure_ascii=true)
'</script>&\\'"\\\\/\\n\\t\\r\\x08\\x0c\\x01\\x7f\u2028'|tojson
missing|tojson
'3'|int, '3.7'|int, 'x'|int, 'x'|int(5), f|int, ' 4 '|int, '2.5'|float, 'q'|float, n|float
neg|abs, 2.567|round(2), 2.5|round, 2.1|round(0, 'ceil'), n|string + 'x', f|string
s|replace('b', 'XX'), 'aaa'|replace('a', 'b', 2), 'ab'|replace('', '-')
'a\\nb\\n\\nc'|indent, 'a\\nb'|indent(2), 'a\\nb'|indent(2, true), 'a\\n\\nb'|indent(2, blank=true), 'a\\nb\\n'|indent(1)
s.strip(), s.lstrip(), s.rstrip(), 'xxaxx'.strip('x'), 'xyaxy'.lstrip('yx'), 'a\\n'.rstrip('\\n'), ' \\x1c\u3000a\u2003'.strip()
'a,b,c'.split(','), 'a,b,c'.split(',', 1), ' a  b '.split(), 'a,b,c'.rsplit(',', 1), ' a  b c'.split(none, 1), ' a b  c '.rsplit(none, 1), ''.split(), ''.split(',')
'a</think>b</think>c'.split('</think>')[-1], 'abc'.split('b')[0].rstrip('\\n')
'abc'.startswith('ab'), 'abc'.endswith('bc'), 'abc'.startswith(('x', 'a')), 'abc'.endswith(()), 'abc'.startswith('')
'abc'.find('c'), 'abc'.find('q'), '\u00e9bc'.find('b'), 'abcb'.rfind('b'), 'abab'.count('ab'), 'abc'.index('c')
'ab'.index('q')
'abc'.upper(), 'ABC'.lower(), 'ab cd'.title(), 'aB'.capitalize(), 'stra\u00dfe'.upper(), 'abc'.replace('b', 'x'), 'a-b'.replace('-', '')
'a\\nb\\r\\nc'.splitlines(), 'a\\nb'.splitlines(true), 'prefix'.removeprefix('pre'), 'prefix'.removesuffix('fix')
'12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), ''.isdigit(), 'ab'.islower(), '-'.join(['a', 'b'])
l[0], l[-1], l[1:], l[:2], l[::-1], l[1:3], l[-2:], l[::2], l[5], l[9:], l[3:0:-1]
s[1], s[-1], s[1:3], s[::-1], s[:-1], s[2:], 'h\u00e9llo'[1], 'h\u00e9llo'[:2]
d.a, d['a'], d.b, d['zz'], nest.a.b[1].c, nest['a']['b'][0], d[missing], l['x'], n.x, z.x
(1, 2), (1,), (), [1, 'a', none, true, 1.5], {'a': 'b\\'c', 1: "q", none: []}, ['it\\'s "x"', 'tab\\t', '\\x00\u00e9\u200b']
[1] + [2, 3], (1,) + (2,), 'ab' * 3, [0] * 2, 3 * 'x', 'a' 'b' "c"
'\\u00e9\\x41\\101\\q\\\\\\'', "d\\"q", 'line\\
break'
1 + 'a'
'a' + 1
l + 'a'
n.foo(), 1
n()
missing()
range(3)|list, range(1, 7, 2)|list, range(3, 0, -1)|list, range(0)|list
dict(a=1, b='x'), dict(a=1).a
1 / 0
[1, 2][1], {'k': [5]}['k'][0], (1, 2)[0], 'abc'[1]|upper
not true == false, true and not false, none == none, none is none, 1 == true, '1' == 1
x is defined and x.y == 3
'%s' is string, 10 // 3 * 3 + 10 % 3 == 10
1_000 + 1, 0.5e1, 1e3
rows[0].k ~ rows[-1]['v'], (rows|first).k, (rows|last)['v'], rows|map(attribute='v')|sum, rows|sum(attribute='v'), rows|sum('v', 10)
none|map('upper')|list, missing|select|list, none|selectattr('x')|list
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ {}
d.items is defined, d.pop is defined, s.strip is defined, l.append is defined
l.append(4)
d.update({'x': 1})
s.__class__
'abc'|attr('upper') is defined, (d|attr('b')) is defined
'{{' ~ '}}' ~ "{%" ~ '%}' ~ '{#'
""".strip("\n").replace("\\\n", "\\\x00").split("\n")
EXPRESSIONS = [e.replace("\\\x00", "\\\n") for e in EXPRESSIONS]

STATEMENTS = [
    "{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem if loop.previtem is defined else '-' }}{{ loop.nextitem if not loop.last else '.' }} {% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}={{ x }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %}",
    "{% for x in [] %}x{% else %}empty{% endfor %}{% for x in l if x > 9 %}x{% else %}empty{% endfor %}{% for x in missing %}x{% else %}no{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}{% for (k, v) in d|dictsort %}{{ v }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ a }}{{ b }}{{ loop.depth }}{% if b == 3 %}{% break %}{% endif %}{% endfor %};{{ loop.index }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}{% for c in 'h\u00e9' %}[{{ c }}]{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}",
    "{% for a in 1, 2, 3 %}{{ a }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}{% if false %}{% set q = 1 %}{% endif %}{{ q }}|{{ q is defined }}",
    "{% set ns = namespace(n=0, items=[], seen=false) %}{% for i in l %}{% set ns.n = ns.n + i %}{% set ns.items = ns.items + [i] %}{% endfor %}{{ ns.n }}{{ ns.items }}{{ ns.seen }}{{ ns.zz is defined }}",
    "{% set ns = namespace({'a': 1}) %}{{ ns.a }}{{ ns['a'] }}",
    "{% set q = 1 %}{% set q.a = 2 %}",
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, e) = [3, 4] %}{{ c }}{{ e }}",
    "{% set a, b = [1] %}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{{ x|length }}{% set y %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ y }}",
    "{% macro m(a, b='B', c=none) %}<{{ a }}|{{ b }}|{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b='x', a='y') }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{{ loop is defined }}{% set y = 5 %}{% endmacro %}{% set x = 2 %}{{ m() }}{{ y is defined }}{% for x in [9] %}{{ m() }}{% endfor %}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}|{{ f(3)|length }}|{{ f(2) + 'x' }}",
    "{%- macro render(content, first=true) -%}\n  {%- if content is string -%}\n    {{- content -}}\n  {%- else -%}\n    {%- for p in content -%}{{- p.text -}}{%- endfor -%}\n  {%- endif -%}\n{%- endmacro -%}\n{{ render('x') }}{{ render([{'text': 'y'}, {'text': 'z'}]) }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% generation %}gen{{ n }}{% endgeneration %}",
    "{% if n > 10 %}a{% elif n > 5 %}b{% else %}c{% endif %}{% if missing %}x{% endif %}{% if not missing %}y{% endif %}{% if z is none and l %}z{% endif %}",
    "{{ raise_exception('no: ' ~ n) }}",
    "a{{ raise_exception('x') if n < 3 else 'fine' }}",
    "{% raw %}{{ x }}{% if %}{% endraw %}|{%- raw -%} {{ y }} {%- endraw -%} |",
    "a{# comment #}b{#- stripped -#}  c\n{# whole line #}\nd",
    "  {% if true %}\n  x\n  {% endif %}\ny\n",
    "  {%- if true %}\n  x\n  {%- endif %}\ny\n\n",
    "a  {% if true -%}  x  {%- endif -%}  b",
    "a\n  {%+ if true %}x{% endif +%}\nb\n{{ n }}\nc\n\n\n",
    "{{ n }}\n\n{{- n -}}\n\n{{ n }}  \n",
    "\t {% set q = 1 %}\t \n\tz {% set q = 2 %}\nw",
    "a\r\nb\rc\n{% if true %}\r\nd{% endif %}\r\n",
    "{% if true %}\n\n{% endif %}|\n  {# c #}  \n|{% for i in [1] %}   \n{{ i }}\n{% endfor %}\n",
    "{{ strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' }}",
    "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages|length }}{{ tools is none }}{{ tools is defined }}{{ documents is none }}",
    "{{ messages[0].content is string }}{{ messages[0]['role'] }}{{ messages[-1].content }}{{ messages[0].tool_calls is defined }}{{ messages[1] is defined }}",
    "{% set messages = messages[1:] %}{{ messages|length }}{% set tools = [] %}{{ tools }}",
    "{{ 1 }}{% set loop_messages = messages %}{% for message in loop_messages %}{{ message['role'] }}{% endfor %}",
    "{% set x = ({'a': {'b': 1}}) %}{{ x }}{{ {'a': {'b': {}}} }}",
    "{% if true %}{% set a = 1 %}{% else %}{% set b = 1 %}{% endif %}{{ a }}{{ b }}",
    "{{ n }}{{",
    "{% if n %}",
    "{% endif %}",
    "{{ 'a }}",
    "{{ n n }}",
    "{{ (n }}",
    "{{ n|nofilter }}",
    "{{ n is notest }}",
    "{% unknown %}",
    "{% for x in l %}{% endif %}",
    "{# no end",
    "{{ }}",
    "{% set none = 1 %}",
    "{% break %}",
]

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content | trim + '\\n\\n' }}
    {%- endif %}
    {{- "# Functions\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nDefault.<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function if call.function is defined else call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ function.name ~ '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
            {%- for name, value in function.arguments|items if function.arguments is mapping %}
                {{- '<parameter=' + name + '>' }}
                {%- set shown = value | tojson | safe if value is mapping or value is sequence and value is not string else value | string %}
                {{- shown }}
            {%- endfor %}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined %}{{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n" }}{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at once") }}{%- endif %}
        {{- '{"name": "' + message.tool_calls[0].function.name + '", ' }}{{- message.tool_calls[0].function.arguments | tojson }}{{- "}<|eom_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

INST = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate user/assistant") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}{{- "[AVAILABLE_TOOLS]" + tools|tojson + "[/AVAILABLE_TOOLS]" }}{%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("only user and assistant roles") }}
    {%- endif %}
{%- endfor %}
"""


def request(messages=HI, **more):
    return dict(messages=messages, **more)


CASES = [("{{ " + e + " }}", request(options=DATA)) for e in EXPRESSIONS] + [(s, request(options=DATA)) for s in STATEMENTS]
CASES.append(("{{ strftime_now('%d %b %Y %H:%M') if strftime_now is defined else '26 Jul 2024' }}", request(now=1750000000)))
for _template in (CHATML, HEADERS, INST):
    for _messages in (HI, TURNS, CALLS, TURNS[1:], [TURNS[2]], CALLS[:2], CALLS + [{"role": "assistant", "content": "Cold.", "reasoning_content": "r"}, {"role": "user", "content": "ok"}],
                      [{"role": "user", "content": [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}]}]):
        for _more in ({}, {"tools": TOOLS, "add_generation_prompt": True}, {"add_generation_prompt": True, "options": {"enable_thinking": False}, "now": 86400 * 366},
                      {"options": {"builtin_tools": ["brave_search", "code_interpreter"], "date_string": "1 Jan", "custom_tools": TOOLS}}):
            CASES.append((_template, request(_messages, **_more)))
