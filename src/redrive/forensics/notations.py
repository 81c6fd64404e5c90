"""How people and programs write a key and what stands under it: the expressions that `assigned.py` puts together.

Each is bounded or possessive, so that none needs more than linear time for what somebody made to be slow.
"""

from __future__ import annotations

import re

_QUOTES = r"[\"'`]|&quot;|&\#0?3[49];|&\#x2[27];|&apos;|\\u002[27]"
_QUOTE = rf"(?P<escape>\\*?)(?P<quote>{_QUOTES})"
SIGNS = re.compile(
    rf"""(?P<before>\\*?(?:{_QUOTES})|\]|%5[Dd])? \s{{0,40}} (?:/\*[^*\n]{{0,64}}\*/\s{{0,8}})?
        (?: (?P<colon>::(?=\ [A-Za-z0-9+/]{{2,}}={{0,2}}\s|\ [A-Za-z0-9+/]{{2,}}={{0,2}}\Z)|:(?![:=]))
          | (?P<sign>=>|:=|=(?![=~])|%3[AaDd]) | (?<=\s)(?P<compared>[=!]=(?=\s?[bu]?\\*["'])) | (?P<space>\ (?=["'])) ) [ \t]{{0,8}} """,  # noqa: E501
    re.VERBOSE,
)
_BARE = r"""[^\s,;&"'`)}\]\\<>] | \\(?![nrtu"'\\]) | [,;](?=[^\s,;&="'`:()\[\]{}<>\\]++(?:\s|\Z)) | <(?![A-Za-z/!?])"""
"""Of a value without quotes; a comma is one of its own only where nothing that follows is assigned."""
VALUE = re.compile(
    rf"""(?P<prefix>[bBuUrRfF]{{1,2}}(?=\\*["']))? {_QUOTE}
       | (?P<call>[A-Za-z_][\w.]{{0,64}}\() | (?P<open>[\[{{(])
       | (?P<bare>(?:(?:bearer|basic|token|digest)\ +)? (?:{_BARE})++)""",
    re.VERBOSE | re.IGNORECASE,
)
WORD = re.compile(r"(?:[^\s\"'`\\<>]|\\(?![nrtu\"'\\])|\\\\|<(?![A-Za-z/!?]))++")
REST_OF_LINE = re.compile(r"(?:[^\n\r\\]|\\(?![nr]))*+")
REST_OF_JSON_LINE = re.compile(r"(?:[^\n\r\\\"]|\\(?![nr\"])|\\\\)*+")
BLOCK = re.compile(
    r"(?:![\w!/:.-]{0,64}[ \t]+)?(?:&\w{1,64}[ \t]+)?[|>][+-]?\d?[+-]?[ \t]*(?:#[^\n]{0,256})?\n((?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)+)"  # noqa: E501
)
ASSIGNS = re.compile(r"[\s&;,?]\s?[\w.-]{1,64}[\"']?\s?[=:]")
EXPORTS = re.compile(r"(?:export|set|setx|env|arg|declare -x)[ \t]{1,4}\Z", re.IGNORECASE)
RAISED = re.compile(r"[ \t]{0,8}[A-Za-z_][\w.$]{0,120}:[ \t]\Z")
NAMES_ONLY = re.compile(r"[A-Za-z_.,=*\s()\[\]]*+\Z")
CALLS = re.compile(r"[A-Za-z_][\w.]{0,64}\([A-Za-z_.,()]*\Z")
_ONE_OF_PAIRS = r'[\w-]{1,64}=(?:\\*"[^"\\\n]{0,2048}\\*"|[^\s,"\\]++)'
SCHEME = re.compile(
    rf"""[A-Za-z][\w-]{{1,30}}\ {{1,4}}
        (?: (?P<pairs>{_ONE_OF_PAIRS}(?:,\ {{0,4}}{_ONE_OF_PAIRS}){{0,24}}) | (?P<one>[\w.~+/=:%-]{{4,}}+) )""",
    re.VERBOSE,
)
"""Of an Authorization that stands in the middle of a line: `Digest username="ann", response="S"`, `ApiKey S`."""
WRAPPED = re.compile(r"(?:[A-Z]\w{0,40}\(\s{0,40}){1,3}(?=\\*\")")
"""`Some("S")` of Rust, `Optional("S")` of Swift."""
HEREDOC = re.compile(r"<<[-~]?[\"']?(?P<mark>\w{1,32})[\"']?\r?\n")
CHANGED = re.compile(r"\\*\"[ \t]{1,4}->[ \t]{1,4}\\*\"")
BELOW = re.compile(
    r"[ \t]*\r?\n(?P<indent>[ \t]+)(?P<said>-[ \t]+[^\n]*(?:\n(?P=indent)-[ \t]+[^\n]*)*+|[^\s:#=({\[]++)[ \t]*(?=\r?\n|\Z)"  # noqa: E501
)
SIBLING = re.compile(
    r"</[\w:.-]{1,64}>\s{0,80}<(?:[\w-]{1,32}:)?(?:value|val|v|string|data|text)(?:\s[^<>]{0,200})?>", re.IGNORECASE
)
LOC_BEFORE = re.compile(r"\bloc\\*[\"']:\s{0,8}[\[(][^\[\]()]{0,200}\Z")
LOC_AFTER = re.compile(r"\\*[\"']\s{0,8},?\s{0,8}[\])]\s{0,8},[^{}]{0,500}?\binput\\*[\"']\s{0,4}:\s{0,8}")
SIZED = re.compile(r"\\*\"(?:\]=>\s{1,20}string\(\d{1,9}\) |;s:\d{1,9}:)(?=\\*\")")
"""PHP says how long a text is: `["password"]=> string(1) "S"`, `s:8:"password";s:1:"S"`."""
PLACEHOLDER = re.compile(r"(?:\?|\$\d{1,3}|%s|%\(\w{1,64}\)s?|\*{3,}|\.{3})[,;)]?\Z")
FORMATTED = re.compile(r"(?:[A-Za-z]{1,16} )?\$?\{[A-Za-z_][\w.()]{0,64}\}")
READS = re.compile(
    r"""[\w.$]{0,64}
        (?: (?:getenv|get|getpass|env|config|lookup_?env|get_?property|field|column)
              \([\w=\s]{0,32}(?P<quote>["']?)[\w\s.:-]{0,64}(?P=quote)\s?\)
          | \w\[(?:\d{1,6}|["'][\w:.\ -]{1,64}["'])\]
        )[;,)]*[ \t]*(?=\r?\n|\Z|\\n)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Code that reads it from elsewhere: `os.Getenv("PASSWORD")`, `tokens[0]`, `$_POST['password']`."""
ANNOTATED = re.compile(
    r"(?:str|bytes|int|bool|SecretStr|(?:Optional|list|dict)\[[\w., ]{1,64}\])(?: \| None)?(?:[ ]=[ ](?:[A-Za-z_][\w.]{0,64}\([^\n\"']{0,128}(?:\"\"|'')?\)|None|\"\"|''))?,?[ \t]*(?=\r?\n|\Z)"  # noqa: E501
)
"""A field of a class in a stack: `password: str = field(default="")`."""
SCHEMA = re.compile(r"\{\s{0,40}\\*[\"']type\\*[\"']:(?![^{}]{0,400}(?:default|example|const|enum))")
COMPLAINT = re.compile(r"\[\s{0,40}\\*[\"'][A-Z]\w*(?: [\w'(),-]{1,32}){2,24}\.\\*[\"']\s{0,40}\]")
"""`["This field may not be blank."]`, as forms say what is wrong with a field."""
TERM = re.compile(r",(?:<<)?(?=\")")
"""Erlang's `{password,"S"}` and `{password,<<"S">>}`."""
ENTITY = re.compile(r"&gt;(?P<said>(?:[^&\n]|&(?!lt;)){1,4096}+)")
ALGORITHMS = re.compile(r"(?i)(?:base|sha|utf|md|oauth|x|h|v|aes|rsa|https?|ipv|iso|pbkdf|ed|tls|rfc|python|py)-?\d")
CODE = re.compile(r"(?:await|not|new|lambda|yield|if|async|typeof)\Z")
TOLD = re.compile(
    r"""\)=\((?P<row>[^)\n]{1,4096}+)\)
      | (?P<field>(?:\r?\n|\\n)[ \t]{1,8}[^\n\[(]{0,300}[\[(][^\n\]]{0,300}?\binput_value=)
      | (?P<beside>(?:\r?\n|\\n)[ \t]{1,40}value:[ \t]{1,8})
      | [ ](?:is|was)[ ][\"'`]?(?P<said>[^\s\"'`<>\\]{4,256}+)
      | [ ](?:-[ ]|->[ ])?(?P<plain>[^\s\"'`<>\\()\[\]{}]{6,256}+)
      | [ ][(\[<](?P<inside>[^\s\"'`<>\\()\[\]{}]{6,256}+)[)\]>]
      | (?P<columns>[ ]{2,20}(?=[^\s|]+[ ]*(?:\n|\Z)))""",
    re.VERBOSE,
)
NAMED_PLAINLY = re.compile(r"\b(?:name|key):[ \t]{1,8}\Z")
NUMBER = re.compile(r"-?[\d.eE+-]++\Z")
ARGUMENT = re.compile(
    r"\s{1,4}(?P<plain>(?!--|-[A-Za-z](?:\s|\Z)|[|&<>])(?:[^\s\"'`\\]|\\(?![nr\"'\\]))++)|\s{1,4}(?=[\"'])|\\*[\"'],\s{0,8}(?=\\*[\"'])"
)
TAG = re.compile(r"(?:\s[^<>]{0,512}+)?(?<!/)>")
_PAIR_NAMES = r"(?:name|key|k|field|header|param|parameter|variable|property|id)"
_PAIR_VALUES = r"(?:value|val|v|content|data|text|default)"
NAMED = re.compile(rf"\\*[\"']?{_PAIR_NAMES}\\*[\"']?\s{{0,8}}(?::|=>|=)\s{{0,8}}[bu]?\\*[\"']\Z", re.IGNORECASE)
AFTER_NAME = re.compile(r"\\*[\"']\s{0,8},?\s{0,8}")
PAIRED = re.compile(rf"{_PAIR_VALUES}\\*[\"']?\s{{0,8}}(?::|=>|=)\s{{0,8}}", re.IGNORECASE)
BORDERS = re.compile(r"[{}\[\]<>]")
VALUE_BEFORE = re.compile(
    rf"\b{_PAIR_VALUES}\\*[\"']?\s{{0,8}}(?::|=>|=)\s{{0,8}}(?P<value>\\*[\"'](?:[^\"'\\]|\\.){{0,512}}[\"']|[\w.+-]{{1,64}})"
    rf"\s{{0,8}},?\s{{0,8}}[^{{}}<>]{{0,100}}\Z",
    re.IGNORECASE | re.DOTALL,
)
HEADER_NAME = re.compile(r"[A-Za-z]{1,32}(?:-[A-Za-z0-9]{1,32})*")
TUPLE_BEFORE = re.compile(r"[\[(]\s{0,8}[bu]?\\*[\"']\Z")
TUPLE_AFTER = re.compile(r"\\*[\"']\s{0,8},\s{0,8}(?=[bu]?\\*[\"'])")
PART = re.compile(
    r"\\*[\"']?(?:;[^\r\n]{0,200})?(?:\\r)?(?:\\n|\r?\n)(?:[A-Za-z-]{1,40}:[^\r\n\\]{0,200}(?:\\r)?(?:\\n|\r?\n)){0,5}"
    r"(?:\\r)?(?:\\n|\r?\n)"
)
PART_END = re.compile(r"(?:\\r|\r)?(?:\\n|\n)--")
FRAME = re.compile(r"\\+x(?:[01][0-9a-f]|7f|[89a-f][0-9a-f])(?:\\x(?P<hex>[0-9a-f]{2})|(?P<length>.)|\Z)", re.DOTALL)
"""A control character behind a key, as it is shown."""
BRACKETS = re.compile(r"[\[\]{}()\"']")
