//! JSON once more: RFC 8259, each rule of the grammar one function, and nothing is given up for
//! what stands in a text or for the size of a number.

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    /// `None`: what stands between the quotes is no text.
    Text(Option<String>),
    Array(Vec<Json>),
    Object(Vec<(Option<String>, Json)>),
}

impl Json {
    /// `None` for what is no JSON.
    pub fn of(bytes: &[u8]) -> Option<Json> {
        let mut rest = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let value = value(&mut rest)?;
        rest.is_empty().then_some(value)
    }

    /// The last of this name.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => {
                members.iter().rev().find(|(known, _)| known.as_deref() == Some(name)).map(|m| &m.1)
            }
            _ => None,
        }
    }
}

/// With the white space around it.
fn value(rest: &mut &[u8]) -> Option<Json> {
    space(rest);
    let value = match *rest.first()? {
        b'[' => array(rest)?,
        b'{' => object(rest)?,
        b'"' => Json::Text(text(between_quotes(rest)?)),
        b'-' | b'0'..=b'9' => number(rest)?,
        _ => word(rest)?,
    };
    space(rest);
    Some(value)
}

fn space(rest: &mut &[u8]) {
    let blank = rest.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
    *rest = &rest[blank..];
}

fn eat(rest: &mut &[u8], text: &str) -> Option<()> {
    *rest = rest.strip_prefix(text.as_bytes())?;
    Some(())
}

fn word(rest: &mut &[u8]) -> Option<Json> {
    for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
        if eat(rest, word).is_some() {
            return Some(value);
        }
    }
    None
}

fn array(rest: &mut &[u8]) -> Option<Json> {
    let mut elements = Vec::new();
    eat(rest, "[")?;
    space(rest);
    while eat(rest, "]").is_none() {
        if !elements.is_empty() {
            eat(rest, ",")?;
        }
        elements.push(value(rest)?);
    }
    Some(Json::Array(elements))
}

fn object(rest: &mut &[u8]) -> Option<Json> {
    let mut members = Vec::new();
    eat(rest, "{")?;
    space(rest);
    while eat(rest, "}").is_none() {
        if !members.is_empty() {
            eat(rest, ",")?;
            space(rest);
        }
        let name = text(between_quotes(rest)?);
        space(rest);
        eat(rest, ":")?;
        members.push((name, value(rest)?));
    }
    Some(Json::Object(members))
}

fn between_quotes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    eat(rest, "\"")?;
    let mut escaped = false;
    let end = rest.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    let inside = &rest[..end];
    *rest = &rest[end + 1..];
    Some(inside)
}

/// What stands between quotes, as `serde_json` reads it.
fn text(inside: &[u8]) -> Option<String> {
    serde_json::from_slice(&[b"\"", inside, b"\""].concat()).ok()
}

fn number(rest: &mut &[u8]) -> Option<Json> {
    let whole = *rest;
    let digits = |rest: &mut &[u8]| {
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        *rest = &rest[count..];
        (count > 0).then_some(())
    };
    let _ = eat(rest, "-");
    if eat(rest, "0").is_none() {
        digits(rest)?;
    }
    if eat(rest, ".").is_some() {
        digits(rest)?;
    }
    if eat(rest, "e").or_else(|| eat(rest, "E")).is_some() {
        let _ = eat(rest, "+").or_else(|| eat(rest, "-"));
        digits(rest)?;
    }
    let written = &whole[..whole.len() - rest.len()];
    Some(Json::Number(String::from_utf8(written.to_vec()).expect("ASCII")))
}
