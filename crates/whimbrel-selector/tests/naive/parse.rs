//! Text to tree, one character after the other. Accepts more than the language has: only texts that
//! the crate accepts are compared.

/// Everything with a value. What of it is a condition, [`Node::is_condition`] tells.
#[derive(Debug, Clone)]
pub enum Node {
    Integer(i64),
    Double(f64),
    Text(String),
    Boolean(bool),
    Field(Field),
    Minus(Box<Node>),
    Plus(Box<Node>),
    /// `+ - * /`
    Arithmetic(char, Box<Node>, Box<Node>),
    Compare(&'static str, Box<Node>, Box<Node>),
    Between {
        not: bool,
        value: Box<Node>,
        low: Box<Node>,
        high: Box<Node>,
    },
    Like {
        not: bool,
        field: Field,
        pattern: Vec<Wild>,
    },
    In {
        not: bool,
        field: Field,
        list: Vec<String>,
    },
    IsNull {
        not: bool,
        field: Field,
    },
    Within(String),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
}

#[derive(Debug, Clone)]
pub enum Field {
    Attribute(String),
    Header(String),
    Json(Vec<Step>),
}

#[derive(Debug, Clone)]
pub enum Step {
    Name(String),
    Index(i64),
}

/// A character of a pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wild {
    Exactly(char),
    One,
    Run,
}

impl Node {
    pub fn is_condition(&self) -> bool {
        matches!(
            self,
            Node::Compare(..)
                | Node::Between { .. }
                | Node::Like { .. }
                | Node::In { .. }
                | Node::IsNull { .. }
                | Node::Within(_)
                | Node::And(_)
                | Node::Or(_)
                | Node::Not(_)
        )
    }
}

const HEADERS: [&str; 11] = [
    "JMSPriority",
    "JMSTimestamp",
    "JMSMessageID",
    "JMSDestination",
    "JMSReplyTo",
    "JMSRedelivered",
    "JMSExpiration",
    "JMSDeliveryTime",
    "JMSDeliveryMode",
    "JMSCorrelationID",
    "JMSType",
];

/// The tree of a selector; an error for what this parser does not understand.
pub fn parse(text: &str) -> Result<Node, String> {
    let mut parser = Parser { text: text.chars().collect(), at: 0 };
    parser.blanks();
    if parser.at == parser.text.len() {
        return Ok(Node::Boolean(true));
    }
    let node = parser.or()?;
    if parser.at == parser.text.len() { Ok(node) } else { Err(format!("left over at {}", parser.at)) }
}

struct Parser {
    text: Vec<char>,
    at: usize,
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii() && c != '÷'
}

/// Each function takes the blanks behind what it reads.
impl Parser {
    fn peek(&self) -> char {
        self.text.get(self.at).copied().unwrap_or('\0')
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), ' ' | '\t' | '\n' | '\r' | '\x0c') {
            self.at += 1;
        }
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        let found = symbol.chars().enumerate().all(|(i, c)| self.text.get(self.at + i) == Some(&c));
        if found {
            self.at += symbol.chars().count();
            self.blanks();
        }
        found
    }

    fn need(&mut self, symbol: &str) -> Result<(), String> {
        if self.symbol(symbol) { Ok(()) } else { Err(format!("no {symbol} at {}", self.at)) }
    }

    fn word_ahead(&self) -> String {
        self.text[self.at..].iter().take_while(|c| in_word(**c)).collect()
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let found = self.word_ahead().eq_ignore_ascii_case(keyword);
        if found {
            self.at += keyword.len();
            self.blanks();
        }
        found
    }

    fn or(&mut self) -> Result<Node, String> {
        let mut parts = vec![self.and()?];
        while self.keyword("OR") {
            parts.push(self.and()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Or(parts) })
    }

    fn and(&mut self) -> Result<Node, String> {
        let mut parts = vec![self.not()?];
        while self.keyword("AND") {
            parts.push(self.not()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::And(parts) })
    }

    fn not(&mut self) -> Result<Node, String> {
        if self.keyword("NOT") { Ok(Node::Not(Box::new(self.not()?))) } else { self.comparison() }
    }

    fn comparison(&mut self) -> Result<Node, String> {
        let left = self.sum()?;
        for op in ["<>", "<=", ">=", "<", ">", "="] {
            if self.symbol(op) {
                return Ok(Node::Compare(op, Box::new(left), Box::new(self.sum()?)));
            }
        }
        if self.keyword("IS") {
            let not = self.keyword("NOT");
            if !self.keyword("NULL") {
                return Err("IS what".to_owned());
            }
            return Ok(Node::IsNull { not, field: field_of(left)? });
        }
        let not = self.keyword("NOT");
        if self.keyword("BETWEEN") {
            let low = Box::new(self.sum()?);
            if !self.keyword("AND") {
                return Err("BETWEEN without AND".to_owned());
            }
            let high = Box::new(self.sum()?);
            return Ok(Node::Between { not, value: Box::new(left), low, high });
        }
        if self.keyword("IN") {
            self.need("(")?;
            let mut list = vec![self.quoted('\'')?];
            while self.symbol(",") {
                list.push(self.quoted('\'')?);
            }
            self.need(")")?;
            return Ok(Node::In { not, field: field_of(left)?, list });
        }
        if self.keyword("LIKE") {
            let pattern = self.quoted('\'')?;
            let escape = if self.keyword("ESCAPE") { self.quoted('\'')?.chars().next() } else { None };
            return Ok(Node::Like { not, field: field_of(left)?, pattern: wild(&pattern, escape)? });
        }
        if not { Err("NOT what".to_owned()) } else { Ok(left) }
    }

    fn sum(&mut self) -> Result<Node, String> {
        let mut left = self.product()?;
        while matches!(self.peek(), '+' | '-') {
            let op = self.peek();
            self.at += 1;
            self.blanks();
            left = Node::Arithmetic(op, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Node, String> {
        let mut left = self.signed()?;
        while matches!(self.peek(), '*' | '/' | '÷') {
            let op = if self.peek() == '*' { '*' } else { '/' };
            self.at += 1;
            self.blanks();
            left = Node::Arithmetic(op, Box::new(left), Box::new(self.signed()?));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Node, String> {
        let minus = self.symbol("-");
        if !minus && !self.symbol("+") {
            return self.primary();
        }
        if self.number_ahead() {
            return self.number(minus);
        }
        let inner = Box::new(self.signed()?);
        Ok(if minus { Node::Minus(inner) } else { Node::Plus(inner) })
    }

    fn number_ahead(&self) -> bool {
        let digit = |at: usize| self.text.get(at).is_some_and(char::is_ascii_digit);
        digit(self.at) || (self.peek() == '.' && digit(self.at + 1))
    }

    fn primary(&mut self) -> Result<Node, String> {
        if self.symbol("(") {
            let inner = self.or()?;
            self.need(")")?;
            return Ok(inner);
        }
        match self.peek() {
            '\'' => return Ok(Node::Text(self.quoted('\'')?)),
            '"' => return Ok(Node::Field(Field::Attribute(self.quoted('"')?))),
            _ if self.number_ahead() => return self.number(false),
            _ => {}
        }
        let word = self.word_ahead();
        if word.is_empty() {
            return Err(format!("nothing known at {}", self.at));
        }
        self.at += word.chars().count();
        self.blanks();
        if word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false") {
            return Ok(Node::Boolean(word.eq_ignore_ascii_case("true")));
        }
        if self.symbol("(") {
            let argument = self.quoted('\'')?;
            self.need(")")?;
            return match word.to_ascii_lowercase().as_str() {
                "json" => Ok(Node::Field(Field::Json(path(&argument)?))),
                "within" => Ok(Node::Within(argument)),
                "header" if ["JMSCorrelationID", "JMSType"].contains(&argument.as_str()) => {
                    Ok(Node::Field(Field::Header(argument)))
                }
                _ => Err(format!("no function {word}")),
            };
        }
        let is_header = HEADERS.contains(&word.as_str());
        Ok(Node::Field(if is_header { Field::Header(word) } else { Field::Attribute(word) }))
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        if self.peek() != quote {
            return Err(format!("no {quote} at {}", self.at));
        }
        let mut content = String::new();
        loop {
            self.at += 1;
            let Some(&c) = self.text.get(self.at) else { return Err("not closed".to_owned()) };
            if c != quote {
                content.push(c);
            } else if self.text.get(self.at + 1) == Some(&quote) {
                content.push(c);
                self.at += 1;
            } else {
                self.at += 1;
                self.blanks();
                return Ok(content);
            }
        }
    }

    /// Java's number literals. Decimal ones are left to the standard library; hexadecimal doubles
    /// are read if they need no rounding.
    fn number(&mut self, minus: bool) -> Result<Node, String> {
        let mut run = String::new();
        while in_word(self.peek()) || self.peek() == '.' {
            let c = self.peek().to_ascii_lowercase();
            run.push(c);
            self.at += 1;
            let exponent = if run.starts_with("0x") { 'p' } else { 'e' };
            if c == exponent && matches!(self.peek(), '+' | '-') {
                run.push(self.peek());
                self.at += 1;
            }
        }
        self.blanks();
        literal(&run.replace('_', ""), minus).ok_or(format!("{run} is no number here"))
    }
}

fn literal(run: &str, minus: bool) -> Option<Node> {
    let sign = if minus { -1.0 } else { 1.0 };
    let integer = |digits: &str, radix: u32| {
        let magnitude = i128::from_str_radix(digits.trim_end_matches('l'), radix).ok()?;
        let value = if minus { -magnitude } else { magnitude };
        Some(i64::try_from(value).map_or(Node::Double(sign * magnitude as f64), Node::Integer))
    };
    if let Some(digits) = run.strip_prefix("0x") {
        return match digits.split_once('p') {
            None => integer(digits, 16),
            Some((mantissa, exponent)) => {
                let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
                if whole.len() + fraction.len() > 12 {
                    return None;
                }
                let mantissa = i64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
                let exponent: i32 = exponent.trim_end_matches(['f', 'd']).parse().ok()?;
                let exponent = exponent.checked_sub(4 * fraction.len() as i32)?;
                let exact = (-900..900).contains(&exponent);
                exact.then(|| Node::Double(sign * mantissa as f64 * 2_f64.powi(exponent)))
            }
        };
    }
    if let Some(digits) = run.strip_prefix("0b") {
        return integer(digits, 2);
    }
    if run.trim_end_matches('l').bytes().all(|b| b.is_ascii_digit()) {
        if run.starts_with('0') && run.trim_end_matches('l').len() > 1 {
            return integer(run, 8);
        }
        if run.len() > 36 {
            return Some(Node::Double(sign * run.trim_end_matches('l').parse::<f64>().ok()?));
        }
        return match integer(run, 10)? {
            Node::Double(_) => Some(Node::Double(sign * run.trim_end_matches('l').parse::<f64>().ok()?)),
            exact => Some(exact),
        };
    }
    Some(Node::Double(sign * run.trim_end_matches(['f', 'd']).parse::<f64>().ok()?))
}

fn field_of(node: Node) -> Result<Field, String> {
    match node {
        Node::Field(field) => Ok(field),
        _ => Err("no field".to_owned()),
    }
}

fn wild(pattern: &str, escape: Option<char>) -> Result<Vec<Wild>, String> {
    let mut characters = pattern.chars();
    let mut wild = Vec::new();
    while let Some(c) = characters.next() {
        wild.push(match c {
            c if Some(c) == escape => Wild::Exactly(characters.next().ok_or("nothing to escape")?),
            '%' => Wild::Run,
            '_' => Wild::One,
            c => Wild::Exactly(c),
        });
    }
    Ok(wild)
}

/// A singular query of RFC 9535.
fn path(text: &str) -> Result<Vec<Step>, String> {
    let text: Vec<char> = text.chars().collect();
    let peek = |at: usize| text.get(at).copied().unwrap_or('\0');
    let skip = |mut at: usize| {
        while matches!(peek(at), ' ' | '\t' | '\n' | '\r') {
            at += 1;
        }
        at
    };
    if peek(0) != '$' {
        return Err("no $".to_owned());
    }
    let (mut at, mut steps) = (1, Vec::new());
    while at < text.len() {
        at = skip(at);
        if peek(at) == '.' {
            let name: String = text[at + 1..].iter().take_while(|c| in_word(**c) && **c != '$').collect();
            at += 1 + name.chars().count();
            steps.push(Step::Name(name));
            continue;
        }
        if peek(at) != '[' {
            return Err("no step".to_owned());
        }
        at = skip(at + 1);
        if matches!(peek(at), '\'' | '"') {
            let quote = peek(at);
            let mut units: Vec<u16> = Vec::new();
            at += 1;
            while peek(at) != quote {
                if at >= text.len() {
                    return Err("not closed".to_owned());
                }
                let mut c = peek(at);
                at += 1;
                if c == '\\' {
                    c = peek(at);
                    at += 1;
                    if c == 'u' {
                        let digits: String = text[at..].iter().take(4).collect();
                        units.push(u16::from_str_radix(&digits, 16).map_err(|_| "no digits".to_owned())?);
                        at += 4;
                        continue;
                    }
                    c = match c {
                        'b' => '\x08',
                        'f' => '\x0c',
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        other => other,
                    };
                }
                units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
            }
            at += 1;
            steps.push(Step::Name(String::from_utf16(&units).map_err(|_| "lone surrogate".to_owned())?));
        } else {
            let digits: String = text[at..].iter().take_while(|c| **c == '-' || c.is_ascii_digit()).collect();
            at += digits.len();
            steps.push(Step::Index(digits.parse().map_err(|_| "no index".to_owned())?));
        }
        at = skip(at);
        if peek(at) != ']' {
            return Err("no ]".to_owned());
        }
        at += 1;
    }
    Ok(steps)
}
