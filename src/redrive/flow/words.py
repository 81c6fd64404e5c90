"""Pure: what the words of a message speak of, as the people on call would say it.

The first table that finds its words decides, so their order is their meaning:

    what is certainly used up       "out of memory", whatever it was doing
    demands on a value              "timeout must be positive" is about the value, not about a timeout
    locks, rates, changes of roles  they come before the timeout that they end in
    refusals                        "password authentication failed" says more than the connection it happened on
    what is used up
    what was not reached
    what may pass                   "unavailable", "try again": everybody says so, whatever it was
    bad input, bugs, what is absent, and at last "invalid", which may be said of anything

The words are for lower-case text with single spaces and "0" for numbers (`texts.prepared`). A line of a table is a part
of one regular expression; one that is indented more goes on with the line above it. None needs more than linear time.
"""

from __future__ import annotations

import re
from textwrap import dedent

from redrive.flow.codes import NETWORK, PERMANENT, PERMISSION, RESOURCE, TRANSIENT, VALIDATION
from redrive.model import Category

_PARTS = {
    "CANNOT": r"(?:fail(?:ed|ure|s|ing)?|could not|couldn't|can(?:not|'t| not)|unable|errors?|trouble|problem|issue)"
    r" (?:to |while |when |in |on )?",
    "SAYS": r"(?:is |are |was |were |has |have |been |being )*",
    "LOGIN": r"(?:credentials?|api[ -]?key|password|passphrase|signature|user ?name|login|grant|jwt|access key"
    r"|client secret|client id)",
    "LIMITED": r"(?:memory|heap|disk|storage|space|inodes?|swap|quota|buffers?|pool|threads?|descriptors?|capacity"
    r"|resources?)",
    "LINK": r"(?:connection|connectivity|network|socket|dns|ssl|tls|transport|tunnel|stream|proxy|tcp|vpn|link|broker)",
    "INPUT": r"(?:field|property|parameter|argument|attribute|value|input|header|(?<!api )(?<!access )key)s?",
    "DATA": r"(?:message|payload|entity|request|body|record|document|object|item|file|attachment|frame|batch|header"
    r"|value|string|name|line|ur[li])s?",
}

_CERTAINLY_USED_UP = r"""
    circuit breaking|data too large, data for|out of (?:memory|disk|space|storage|shared memory)|no space left
    disk quota|oom[ -]?kill|oom\b|read-only ?/? ?-?allow[ -]delete|memory limit|disk (?:is )?full|maxmemory
    signal 9\b|sigkill|exit(?:ed)? (?:code|status) 137
"""
_DEMANDS = r"""
    (?:invalid|illegal|bad|malformed|incorrect|unrecogni[sz]ed|negative|missing|unparseable|non-numeric) (?:\w+ ){0,2}?
      (?:values?|arguments?|parameters?|options?|settings?|configuration|format|field|property|literal|input|syntax|ur[li]
      |dates?|number|characters?|bytes?|connection string|escape|encoding|enum|header name|json|xml|utf-?0
      |payload|data)\b
    must (?:not |also |only )?(?:be|have|contain|match|start|end|conform|equal|specify)\b(?! (?:a |an |the )?(?:\w+ )?
      (?:permissions?|roles?|privileges?|access|logged|authenticated|authori[sz]ed|admin|owner|retried|restarted))
    (?:should|may not|cannot|can't|can not) be (?:a |an )?(?:null|none|empty|blank|negative|zero|greater|less|valid)\b
    (?:is|are|was) not (?:a |an )?valid\b|not a valid\b|not (?:a |an )?(?:number|integer|numeric|uuid|date|e-?mail)\b
    {INPUT} (?:\S+ )?{SAYS}(?:required|missing|invalid|unknown)\b|is negative|is not numeric
    (?:unknown|unexpected|missing|required) (?:required )?
      (?:field|property|parameter|attribute|element|argument)s?\b(?! 0)
    unknown (?:\w+ )?(?:currency|country|code|status|type|value|format|enum|unit|locale|language|field)\b
    {DATA} (?:size )?{SAYS}(?:too (?:large|long|big|short)|larger than|exceeds|exceeded)\b
    too (?:long|large|short|big) for\b|would be truncated|data truncat|out of range (?:for|value)\b
    numeric .{0,20}overflow|(?:larger|longer|bigger|greater) than (?:the )?(?:max|limit|allow|permitted)
    exceeds (?:the )?(?:max|allow|size|length)|incorrect \w+ value|unrecogni[sz]ed (?:field|property|token|option)
    (?:unique|foreign key|check|not[ -]null|primary key|referential|exclusion)\b.{0,40}?\b(?:constraint|violat|failed)
    violates\b|constraint (?:failed|fails|violat)|duplicate (?:key|entry|value|record)|dup key
    cannot insert (?:the value )?null|column .{0,40}?cannot be null
"""
_CONTENTION = r"""
    rate[ -]?limit|rate (?:is |was )?(?:exceeded|too high)|throttl|slow ?down\b|reduce your (?:request )?rate
    requests? per (?:second|minute)|deadlock(?!!)|could not serialize|serialization failure|lock wait
    lock (?:request )?time ?out|(?:lock|mutex|lease) (?:is )?(?:held|contention)
    (?:could not|cannot|can't|unable to|failed to) (?:obtain|acquire|get|take) (?:a |an |the )?(?:\w+ ){0,2}lock
    (?:database|table|row|file|resource|record|object|document|schema|it) (?:\S+ )?is locked|database locked
    locked by another|is locked\Z|write ?conflict|version conflict|optimistic lock|edit conflict
    conflict(?:ed|s|ing)? with (?:another|a concurrent|other)|by another (?:transaction|process|user|session)
    concurrent (?:update|modification|write|transaction|request|access|delete)
    restart(?:ing)? (?:the )?transaction|rerun the transaction|rebalanc|maintenance
    overload|masterdown|resource locked
    transaction {SAYS}(?:aborted|rolled back|conflict)|(?:lock|lease|reservation) (?:\w+ )?expired
    not (?:the )?(?:current )?(?:leader|coordinator|primary|master|writable primary)\b|no (?:leader|master)\b
    (?:master|leader) not|leader election|not enough (?:[\w-]+ )?replicas|in-sync replicas
    read[ -]?only (?:replica|slave|transaction|standby)|fail(?:ing)? ?over\b
"""
_REFUSED = r"""
    access {SAYS}(?:denied|forbidden|refused|not allowed)|permissions? (?:denied|to|error|is|are|required|missing|for)\b
    (?:not|don't|doesn't|no|without|lacks?|lacking|missing|insufficient|requires?|needs?) (?:have )?(?:\w+ )?
      (?:permissions?|privileges?|scopes?|entitlements?|access rights|authori[sz]ation|authentication token)\b
    (?:lacks?|missing|without|requires?) (?:the )?(?:\S+ )?role\b|insufficient (?:\w+ )?(?:right|role)
    not (?:authori[sz]ed|permitted|entitled|allowed to|signed in|logged in)|un(?:authori[sz]ed|authenticated)\b
    forbidden\b|not have access|(?:user|host|client|ip) .{0,40}is not allowed|denied\b|pg ?hba
    (?:authentication|authorization|login|logon|auth) {SAYS}
      (?:failed|failure|error|required|denied|unsuccessful|rejected)
    (?:invalid|incorrect|wrong|bad|missing|unknown|no|expired|locate|load|find) (?:\w+ )?{LOGIN}(?: provided)?\b
    (?:invalid|expired|revoked|missing|bad) (?:access |auth |security |bearer |refresh |id |session |csrf )?
      token\b(?! in json)
    (?:token|session|sas|{LOGIN})s? (?:\S+ ){0,5}?{SAYS}
      (?:expired|revoked|incorrect|not match|mismatch|required|rejected|missing|not accepted)\b
    (?:could not|unable to|failed to|cannot) (?:authenticate|authori[sz]e|log ?in|sign in)
    requires (?:authentication|authori[sz]ation)|noauth\b|wrongpass\b|noperm\b|sasl (?:authentication|handshake)
    operation not permitted|read-?only (?:file ?system|database)|account {SAYS}locked
    relay(?:ing)? (?:access )?not permitted|user account .{0,20}(?:disabled|locked)
    must be (?:authenticated|logged in|authori[sz]ed)
"""
_USED_UP = r"""
    out of (?:inodes?|file descriptors?|swap|quota|resources?|ports)|low on
    running out of (?:memory|disk)
    {LIMITED} (?:\w+ ){0,2}?(?:exhaust|full\b|exceeded|depleted|used up|limit|over ?flow|low\b)
    (?<!retries )(?<!retry )(?<!attempts )exhausted|no more connections|max ?user ?connections
    no (?:free space|disk space|more (?:space|memory)|available (?:memory|space|disk|connections?))
    not enough (?:\w+ )?(?:memory|space|disk|storage|resources?|quota|capacity)
    insufficient (?:\w+ )?(?:memory|storage|space|disk|resources?|capacity|buffer|quota)
    (?:cannot|could not|unable to|failed to|can't)
      (?: allocate| extend| fork| create (?:new )?(?:native )?thread| start new thread)
    heap space|heap limit|gc overhead|metaspace|allocation failed|allocate memory|bad ?alloc|used memory|watermark
    quotas?\b|connection slots|(?:connection|client|session|process|file|thread)s? limit|disk usage
    too many (?:open files|connections|clients|processes|threads|files|sessions|channels|open cursors|active)
    max(?:imum)? (?:number of )?(?:clients|connections|sessions|channels|processes)|pool (?:limit|size)
    (?:mailbox|queue|disk|buffer|pool|partition|tablespace|log|table|cache|volume|filesystem|file system|device|inbox)
      (?: \S+)?(?: is| are| was)? full\b
    (?:usage|account|plan|storage|instance|vcpu) limit|(?:disk|input/output|i/o) (?:i/o )?error(?! on)
    (?:unable|failed|cannot|can't) (?:to )?(?:persist|save|flush|write) (?:\S+ )?(?:to|on) disk
    memory (?:\S+ ){0,5}?fail|limit {SAYS}(?:exceeded|reached|hit)\b(?<!time limit exceeded)
"""
_NOT_REACHED = r"""
    time[ds]?[ -]?out|timing out|deadline (?:was )?exceeded|time limit|execution time .{0,20}exceeded|took too long
    max ?time|metadata after|passed since batch|not respond|no response from|received no response
    unable to (?:read|write) data (?:from|to)|communications? link|tns\b|connection forced
    unreachable|dns\b|name resolution|name or service not known|nodename nor servname|getaddrinfo|nxdomain|servfail
    resolv(?:e|ing)\b.{0,20}\b(?:host|name|address)|(?:unknown|no such|bad) host\b|name not resolved
    (?:host|name|address) .{0,20}\bresolved
    host(?: name)? (?:\S+ )?(?:not found|is down|not known)|no address associated
    {LINK}s? (?:\S+ ){0,3}?
      (?:errors?|issues?|fail(?:ure|ed|s|ing)?|problems?|trouble|refused|reset|aborted|closed|lost|broken|dropped
      |terminated|interrupted|rejected|severed|shut ?down|down|unexpectedly|not established|disconnect\w*|died|dead
      |unstable|instability)\b
    (?:lost|broken|bad|no|dropped|closed|closing|dead|stale|terminat\w+|establish\w*) (?:\w+ )?(?:\w+ )?{LINK}\b
    {CANNOT}(?:be )?(?:re)?(?:connect(?:ing|ed)?|reach(?:ing|ed)?|contact(?:ing)?|dial(?:ing)?|communicat\w+|fetch from
      |bind to|(?:open|acquire|obtain|get|create|establish) (?:\w+ ){0,3}connection)\b
    connect (?:\S+ )?(?:error|failure|failed|refused|reset|timed)|certificate|certs?\b|self[- ]signed|x509
    verify (?:the )?(?:leaf|first)|ssl\b|tls\b|handshake|pkix|unknown ca\b|broken pipe|reset by peer|no route to host
    remote (?:end|host|peer|server) (?:\S+ )?(?:closed|disconnect)|forcibly closed|socket hang ?up|hang up|has gone away
    disconnected|end[ -]of[ -]file on|unexpected(?:ly)? (?:eof|end of (?:file|stream))|eof\b(?! while (?:pars|scan))
    premature(?:ly)? (?:close|end)|incomplete read|incomplete chunked|bad gateway|gateway time|upstream
    fetch failed|failed to fetch|network|not connected|no nodes? (?:available|alive)|server selection|no listener
    brokers? (?:\S+ )?(?:down|disconnected)|no servers? (?:available|found)|i/o error on|no replica set members
    packet loss|peer (?:closed|not responding|shut)|could not be reached|not reachable|offline\b
    invalid (?:http )?(?:response|reply|handshake) (?:from|received)|pool (?:\S+ ){0,3}?(?:paused|cleared|shut ?down)
"""
_PASSING = r"""
    (?<!mailbox )unavailable|not (?:currently )?available|temporar(?:y|ily)|transient|retryable|retriable|back ?off
    try (?:\S+ )?(?:again|later)|retry (?:later|after|in|your|the|this)|please retry|be retried|at a later time
    come back later|too many (?:requests|concurrent|attempts|pending|inflight|in-flight|calls)|busy\b
    (?:over|at) capacity|under (?:heavy|high) load|internal (?:server )?error|server error|(?:internal|service) failure
    start(?:ing)? up|shutting down|shut ?down in progress|warming up|loading\b|not (?:yet )?ready|in progress
    circuit (?:breaker )?.{0,40}?\bopen|breaker is open|rejected execution|queue capacity|back ?pressure
    (?:service|server|backend|system|api|site|application) (?:is |was |currently |went )*(?:down|unresponsive)\b
    snapshot too old|cannot schedule new|poll interval|cluster ?(?:is )?down|no (?:primary|coordinator|replica|shard)
    shards? failed|tryagain|gr[ea]ylist|deferred|recovery mode|recovering|administrator command
    interrupted|cancel(?:l?ed|ing|lation)|abort(?:ed)?\b|stale (?:\w+ )?(?:read|metadata|epoch|file handle)|preempted
    conflict\b|rejected since|unstable|not accepting|cannot accept|election|hiccup|glitch
"""
_BAD_INPUT = r"""
    {CANNOT}(?:\w+ ){0,2}?(?:pars(?:e|ing)|decod(?:e|ing)|(?:de)?seriali[sz](?:e|ing)|unmarshal\w*|convert(?:ing)?
      |validat(?:e|ing)|interpret|coerce)\b
    (?:pars(?:e|ing|er)|decod(?:e|ing)|(?:de)?seriali[sz]ation|unmarshal\w*|conversion|mapping|type)
      (?: error| exception| failed| failure| mismatch)
    unexpected (?:token|character|end of (?:json|input|document|xml|array|object|string)|identifier|symbol|byte|type)
    in json\b|expecting value|json text|(?:unexpected )?eof while|not well-?formed|no content to map|input string
    for input|codec can't|can't (?:de|en)code|not (?:json|utf-?0|ascii)\b|validation (?:error|fail|exception)
    (?:does|do|did) not (?:match|conform|validate|satisfy)|failed (?:schema |document |data |input )?validation
    expected .{0,60}?\b(?:got|found|received|but|was|actual|instead)\b|should (?:be|have|match|contain)\b
    wrong (?:type|number of)|type mismatch|cast to (?:\w+ ){1,3}failed|magic byte
"""
_BUGS = r"""
    null ?pointer|nil pointer|null reference|object reference not set|has no attribute|nonetype|nil map
    is not (?:a function|defined|callable|iterable|subscriptable)|cannot (?:read|set) propert|of (?:undefined|null)\b
    because .{0,80}? is null|undefined (?:method|function|variable|is)|not (?:yet )?(?:implemented|supported)
    unimplemented|unsupported|does not support|no longer supported|programming error|(?:sql|query) syntax
    syntax error at or near|near .{0,40}?: syntax error|disk image is malformed|goroutines are asleep
    headers after they are sent|disposed|precondition failed|divi(?:sion|ded?) by zero|stack overflow|recursion
    call stack|no module named|cannot import|cannot be cast|class not found|segmentation fault|runtime error|assertion
    0 required positional|(?:keyword|positional) argument|wrong kind of value|panic\b|method not found|bug in\b
    unknown (?:command|method|function|operation|procedure|opcode)|cannot find module|core dumped|sigsegv
    could not load (?:file|assembly|type|class)|bad file descriptor|event loop is closed
"""
_ABSENT = r"""
    not found|no such|no rows|no results?\b|not present|file exists|not empty|(?:is|not) a directory|no record
    unable to open|(?:cannot|could not|can't) open|too many (?:redirects|levels)|does(?:n't| not) exist|not exist\b
    already exist|(?:cannot|could not|couldn't|unable to) find|no longer (?:exists|available|active)|non-?existent
    unknown (?:database|column|table|topic|queue|exchange|index|collection|service|user|recipient|mailbox|key|address
      |account|customer|id|partition|member)
    user unknown|mailbox unavailable|recipient (?:address )?(?:rejected|refused)|address rejected|undeliverable
    blacklist|blocklist|blocked|spam\b|unsolicited|bounced|message rejected|not verified|permanently|gone\b
    has been (?:deleted|removed|disabled|suspended|deactivated|closed|archived)|was (?:deleted|removed|rejected)
    is (?:disabled|suspended|deactivated)|decommissioned|deprecated|invalid (?:object|column|table) name
    not (?:registered|declared|deployed)|undefined (?:table|column)|missing from|not in the (?:database|list|registry)
    no (?:handler|mapping|matching|consumer|subscription|exchange|queue|route|provider)\b|declined|fraud
    insufficient (?:funds|balance)
"""
_CALLED_INVALID = r"""
    invalid|malformed|validation|schema(?! registry)|syntax error|integrity error|data error|illegal\b|unprocessable
    missing (?:required )?(?:field|argument|parameter)|bad request|not acceptable|corrupt|unparseable|unrecogni[sz]ed
    mismatch|out of (?:range|bounds)|incorrect|ill-?formed|not in (?:a|the) correct format|duplicate|field required
    (?:is|are) (?:required|empty|blank)|overflow|too (?:large|long|short|big)|cannot unmarshal|can't parse|unreadable
    not allowed here|is not allowed|expected\b|wrong (?:format|value)|bad (?:data|message|value)|violation
    too many (?:clauses|fields|arguments|columns|parameters|values)
"""


def compiled(table: str) -> re.Pattern[str]:
    """A table as one expression, to be found where a word begins.

    Its lines are alternatives; one that is indented more goes on with the line above it.
    """
    whole = dedent(table).strip("\n").replace("\n  ", "").replace("\n", "|")
    for name, part in _PARTS.items():
        whole = whole.replace(f"{{{name}}}", part)
    return re.compile(rf"\b(?:{whole})")


ABSENCE = compiled(_ABSENT)
"""What is not there may come yet: an event can overtake the row that it speaks of."""
RULES: tuple[tuple[re.Pattern[str], Category], ...] = (
    (compiled(_CERTAINLY_USED_UP), RESOURCE),
    (compiled(_DEMANDS), VALIDATION),
    (compiled(_CONTENTION), TRANSIENT),
    (compiled(_REFUSED), PERMISSION),
    (compiled(_USED_UP), RESOURCE),
    (compiled(_NOT_REACHED), NETWORK),
    (compiled(_PASSING), TRANSIENT),
    (compiled(_BAD_INPUT), VALIDATION),
    (compiled(_BUGS), PERMANENT),
    (ABSENCE, PERMANENT),
    (compiled(_CALLED_INVALID), VALIDATION),
)
