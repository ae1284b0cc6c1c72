//! Hash order must not influence the deterministic crates.
//!
//! A map with a fixed seed gives the same answers in every run, but its iteration order depends on
//! its capacity and on the processor. So a variable of a hash type in a pure crate is only looked
//! up, never iterated. The check goes by declared names within a crate; `clippy.toml` forbids the
//! same methods by type.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Finding;
use super::rust::RustFile;
use super::tables::{HASH_ORDER_METHODS, HASH_TYPES, is_pure};

/// Checks all pure crates.
pub fn check(sources: &[RustFile]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&RustFile>> = BTreeMap::new();
    for source in sources.iter().filter(|source| is_pure(&source.path) && !source.is_test) {
        let name = source.path.split('/').nth(1).unwrap_or_default();
        crates.entry(name).or_default().push(source);
    }
    crates.values().flat_map(|files| check_crate(files)).collect()
}

fn check_crate(files: &[&RustFile]) -> Vec<Finding> {
    let mut declared =
        Declared { types: HASH_TYPES.iter().map(|name| (*name).to_owned()).collect(), names: BTreeSet::new() };
    // An alias of an alias is found in the next round; the loop ends when a round finds nothing
    // new.
    loop {
        let known = declared.types.len() + declared.names.len();
        files.iter().for_each(|file| declared.visit_file(&file.syntax));
        if declared.types.len() + declared.names.len() == known {
            break;
        }
    }
    let mut findings = Vec::new();
    for file in files {
        let mut walks = Walks { file, names: &declared.names, findings: &mut findings };
        walks.visit_file(&file.syntax);
    }
    findings
}

/// Collects the names declared with a hash type.
struct Declared {
    types: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl Declared {
    fn is_hash(&self, ty: &syn::Type) -> bool {
        match ty {
            syn::Type::Reference(reference) => self.is_hash(&reference.elem),
            syn::Type::Path(path) => {
                path.path.segments.last().is_some_and(|last| self.types.contains(&last.ident.to_string()))
            }
            _ => false,
        }
    }

    fn note(&mut self, pattern: &syn::Pat, ty: &syn::Type) {
        if let (syn::Pat::Ident(name), true) = (pattern, self.is_hash(ty)) {
            self.names.insert(name.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Declared {
    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if self.is_hash(&item.ty) {
            self.types.insert(item.ident.to_string());
        }
    }

    fn visit_use_rename(&mut self, rename: &'ast syn::UseRename) {
        if self.types.contains(&rename.ident.to_string()) {
            self.types.insert(rename.rename.to_string());
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let (Some(name), true) = (&field.ident, self.is_hash(&field.ty)) {
            self.names.insert(name.to_string());
        }
    }

    fn visit_pat_type(&mut self, typed: &'ast syn::PatType) {
        self.note(&typed.pat, &typed.ty);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (syn::Pat::Ident(name), Some(init)) = (&local.pat, &local.init)
            && let syn::Expr::Call(call) = &*init.expr
            && let syn::Expr::Path(path) = &*call.func
            && path.path.segments.iter().rev().nth(1).is_some_and(|ty| self.types.contains(&ty.ident.to_string()))
        {
            self.names.insert(name.ident.to_string());
        }
        syn::visit::visit_local(self, local);
    }
}

/// Finds the iterations over such names.
struct Walks<'a> {
    file: &'a RustFile,
    names: &'a BTreeSet<String>,
    findings: &'a mut Vec<Finding>,
}

impl Walks<'_> {
    fn is_hash(&self, expression: &syn::Expr) -> bool {
        match expression {
            syn::Expr::Path(path) => path.path.get_ident().is_some_and(|name| self.names.contains(&name.to_string())),
            syn::Expr::Field(field) => {
                matches!(&field.member, syn::Member::Named(name) if self.names.contains(&name.to_string()))
            }
            syn::Expr::Reference(reference) => self.is_hash(&reference.expr),
            syn::Expr::Paren(paren) => self.is_hash(&paren.expr),
            syn::Expr::Unary(unary) => self.is_hash(&unary.expr),
            _ => false,
        }
    }

    fn report(&mut self, line: usize, what: &str) {
        if !self.file.is_test_line(line) {
            let message = format!(
                "{what} walks a hash table in the order of its hashes; keep what is walked in a BTreeMap or a Vec"
            );
            self.findings.push(Finding::new(self.file.place(line), "hash-order", message));
        }
    }
}

impl<'ast> Visit<'ast> for Walks<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        if HASH_ORDER_METHODS.contains(&method.as_str()) && self.is_hash(&call.receiver) {
            self.report(call.method.span().start().line, &format!("`{method}`"));
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_for_loop(&mut self, each: &'ast syn::ExprForLoop) {
        if self.is_hash(&each.expr) {
            self.report(each.expr.span().start().line, "`for`");
        }
        syn::visit::visit_expr_for_loop(self, each);
    }
}
