//! Which functions of an MPI may carry information to another process, and how they are called.
//!
//! The prototypes are those that a compiler finds in `mpi.h`: every MPI has some of its own. A
//! function that is not known to be local counts as a message.

/// Functions that concern only the calling process, by the beginning of their names without `MPI_`.
/// The shim itself defines those of files, of the beginning and end, and those that wait and test;
/// the latter complete operations that other functions have begun.
const LOCAL_PREFIXES: [&str; 51] = [
    "Abi_",
    "Add_error_",
    "Attr_",
    "Buffer_",
    "Comm_call_errhandler",
    "Comm_compare",
    "Comm_create_errhandler",
    "Comm_create_keyval",
    "Comm_delete_attr",
    "Comm_free_keyval",
    "Comm_get_",
    "Comm_group",
    "Comm_remote_",
    "Comm_set_attr",
    "Comm_set_errhandler",
    "Comm_set_name",
    "Comm_test_inter",
    "Delete_error_",
    "Errhandler_",
    "Error_",
    "File_",
    "Final",
    "GPU_query_",
    "Grequest_",
    "Group_",
    "Info_",
    "Init",
    "Is_thread_",
    "Keyval_",
    "Op_",
    "Pack",
    "Query_",
    "Remove_error_",
    "Request_",
    "Session_call_errhandler",
    "Session_create_errhandler",
    "Session_get_",
    "Session_set_errhandler",
    "Status_",
    "T_",
    "Test",
    "Type_",
    "Unpack",
    "Wait",
    "Win_call_errhandler",
    "Win_create_errhandler",
    "Win_create_keyval",
    "Win_delete_attr",
    "Win_free_keyval",
    "Win_get_",
    "Win_set_attr",
];

/// Names of further local functions, without `MPI_` and without the `_c` of large counts.
const LOCAL_NAMES: [&str; 58] = [
    "Abort",
    "Address",
    "Alloc_mem",
    "Bsend_init",
    "Cancel",
    "Cart_coords",
    "Cart_get",
    "Cart_rank",
    "Cart_shift",
    "Cartdim_get",
    "Close_port",
    "Comm_attach_buffer",
    "Comm_detach_buffer",
    "Comm_flush_buffer",
    "Comm_iflush_buffer",
    "Comm_rank",
    "Comm_size",
    "Dims_create",
    "Dist_graph_neighbors",
    "Dist_graph_neighbors_count",
    "Free_mem",
    "Get_address",
    "Get_count",
    "Get_elements",
    "Get_elements_x",
    "Get_hw_resource_info",
    "Get_library_version",
    "Get_processor_name",
    "Get_version",
    "Graph_get",
    "Graph_neighbors",
    "Graph_neighbors_count",
    "Graphdims_get",
    "Improbe",
    "Iprobe",
    "Mprobe",
    "Open_port",
    "Parrived",
    "Precv_init",
    "Probe",
    "Psend_init",
    "Recv_init",
    "Reduce_local",
    "Register_datarep",
    "Rsend_init",
    "Send_init",
    "Session_attach_buffer",
    "Session_detach_buffer",
    "Session_flush_buffer",
    "Session_iflush_buffer",
    "Session_init",
    "Ssend_init",
    "Topo_test",
    "Win_attach",
    "Win_detach",
    "Win_set_errhandler",
    "Win_set_name",
    "Win_shared_query",
];

/// Ends of the names of functions that convert handles.
const CONVERSIONS: [&str; 8] =
    ["_c2f", "_f2c", "_c2f08", "_f082c", "_f2f08", "_f082f", "_toint", "_fromint"];

/// Messages of MPI 4 whose types MPI 3 has, too: a shim that is built with an older MPI serves
/// programs of a newer one with the same interface.
const LATER: &str = "
int MPI_Comm_create_from_group(MPI_Group group, const char *tag, MPI_Info info,
                               MPI_Errhandler handler, MPI_Comm *comm);
int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *copy, MPI_Request *request);
int MPI_Intercomm_create_from_groups(MPI_Group local, int local_leader, MPI_Group remote,
                                     int remote_leader, const char *tag, MPI_Info info,
                                     MPI_Errhandler handler, MPI_Comm *comm);
int MPI_Isendrecv(const void *sent, int sent_count, MPI_Datatype sent_type, int target,
                  int sent_tag, void *received, int count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Isendrecv_replace(void *data, int count, MPI_Datatype type, int target, int sent_tag,
                          int source, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Pready(int partition, MPI_Request request);
int MPI_Pready_list(int length, const int partitions[], MPI_Request request);
int MPI_Pready_range(int first, int last, MPI_Request request);
";

/// A function that returns an `int`, as C declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Prototype {
    /// Its name, with `MPI_` or `MPIX_`.
    name: String,
    /// Its parameters, each with a name.
    parameters: String,
    /// The names of the parameters.
    arguments: String,
}

/// Returns the file `messages.inc` of the shim: a line `MESSAGE(name, (parameters), (arguments))`
/// per function. `header` is `mpi.h` after the preprocessor.
pub(crate) fn messages(header: &str) -> String {
    let mut found: Vec<Prototype> = Vec::new();
    for prototype in prototypes(header).into_iter().chain(prototypes(LATER)) {
        let is_known = found.iter().any(|it| it.name == prototype.name);
        if !is_known && !is_local(&prototype.name) {
            found.push(prototype);
        }
    }
    let line = |it: &Prototype| {
        let Prototype { name, parameters, arguments } = it;
        format!("MESSAGE({name}, ({parameters}), ({arguments}))\n")
    };
    found.iter().map(line).collect()
}

/// Reports whether no other process hears of a call of this function.
fn is_local(name: &str) -> bool {
    let name = name.strip_prefix("MPI_").or_else(|| name.strip_prefix("MPIX_")).unwrap_or(name);
    let short = name.strip_suffix("_c").unwrap_or(name);
    LOCAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || LOCAL_NAMES.contains(&short)
        || CONVERSIONS.iter().any(|end| name.ends_with(end))
}

/// Returns the functions of MPI that C code declares, except those with a variable number of
/// arguments.
fn prototypes(code: &str) -> Vec<Prototype> {
    let tokens = tokens(code);
    let declarations = tokens.split(|it| matches!(*it, ";" | "{" | "}"));
    declarations.filter_map(prototype).collect()
}

/// Reads a declaration, if it is one of a function of MPI.
fn prototype(declaration: &[&str]) -> Option<Prototype> {
    let words = without_attributes(declaration);
    let words = words.strip_prefix(&["extern"]).unwrap_or(&words);
    let ["int", name, "(", parameters @ .., ")"] = words else { return None };
    if !(name.starts_with("MPI_") || name.starts_with("MPIX_")) || parameters.contains(&"...") {
        return None;
    }
    let mut named = Vec::new();
    let mut names = Vec::new();
    let parameters = if parameters == ["void"] { &[] } else { parameters };
    for (index, parameter) in at_commas(parameters).into_iter().enumerate() {
        let (parameter, its_name) = with_name(parameter, &format!("argument_{index}"));
        named.push(parameter);
        names.push(its_name);
    }
    let parameters = if named.is_empty() { "void".to_owned() } else { named.join(", ") };
    Some(Prototype { name: (*name).to_owned(), parameters, arguments: names.join(", ") })
}

/// Divides C code into words, signs and strings.
fn tokens(code: &str) -> Vec<&str> {
    let is_of_word = |it: char| it == '_' || it.is_alphanumeric();
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '.' if rest.starts_with("...") => 3,
            _ if is_of_word(first) => rest.find(|it| !is_of_word(it)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, left) = rest.split_at(length);
        tokens.push(token);
        rest = left.trim_start();
    }
    tokens
}

/// Removes `__attribute__((...))` and `__extension__`.
fn without_attributes<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut left = Vec::new();
    let mut tokens = tokens.iter().copied();
    while let Some(token) = tokens.next() {
        match token {
            "__attribute__" => {
                let mut depth = 0;
                let _end = tokens.by_ref().find(|it| {
                    depth += depth_of(it);
                    depth == 0
                });
            }
            "__extension__" => {}
            _ => left.push(token),
        }
    }
    left
}

/// Returns how much a token changes the depth of parentheses.
fn depth_of(token: &str) -> i32 {
    match token {
        "(" => 1,
        ")" => -1,
        _ => 0,
    }
}

/// Divides parameters at the commas outside of parentheses.
fn at_commas<'a>(tokens: &'a [&'a str]) -> Vec<&'a [&'a str]> {
    let mut depth = 0;
    let is_comma = |token: &&str| {
        depth += depth_of(token);
        depth == 0 && *token == ","
    };
    tokens.split(is_comma).filter(|it| !it.is_empty()).collect()
}

/// Returns a parameter as code, and its name: `name` if it has none.
fn with_name(parameter: &[&str], name: &str) -> (String, String) {
    let place = place_of_name(parameter);
    match parameter.get(place) {
        Some(word) if is_name(&parameter[..place], word) => {
            (parameter.join(" "), (*word).to_owned())
        }
        _ => {
            let (before, after) = parameter.split_at(place);
            ([before, &[name], after].concat().join(" "), name.to_owned())
        }
    }
}

/// Returns the index at which a parameter has its name, or would have it: behind the `*` of a
/// pointer to a function; else at the end, but before dimensions.
fn place_of_name(parameter: &[&str]) -> usize {
    if let Some(at) = parameter.windows(2).position(|it| it == ["(", "*"]) {
        return at + 2;
    }
    let end = parameter.iter().position(|it| *it == "[").unwrap_or(parameter.len());
    if end > 0 && is_name(&parameter[..end - 1], parameter[end - 1]) { end - 1 } else { end }
}

/// Reports whether a word behind others in a parameter is its name: a type precedes the name.
fn is_name(before: &[&str], word: &str) -> bool {
    const QUALIFIERS: [&str; 6] = ["const", "volatile", "restrict", "struct", "enum", "union"];
    const TYPES: [&str; 9] =
        ["void", "char", "short", "int", "long", "float", "double", "signed", "unsigned"];
    let is_word = word.starts_with(|it: char| it == '_' || it.is_alphabetic());
    is_word
        && !QUALIFIERS.contains(&word)
        && !TYPES.contains(&word)
        && before.iter().any(|it| !QUALIFIERS.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(header: &str) -> Vec<String> {
        let later = messages("").lines().count();
        let all: Vec<_> = messages(header).lines().map(str::to_owned).collect();
        all[..all.len() - later].to_vec()
    }

    #[test]
    fn parameters_are_passed_on_by_their_names() {
        let header = "
            typedef int MPI_Comm;
            static inline int help(int x) { return x; }
            extern int MPI_Barrier(MPI_Comm comm) __attribute__((visibility(\"default\")));
            __attribute__((visibility(\"default\"))) int MPI_Alltoallw(const void *sendbuf,
                const int sendcounts[], const MPI_Datatype types[], int ranges[][3],
                char **array_of_argv[], struct tree *tree, unsigned int n);
            int MPIX_Yield(void) __attribute__((__deprecated__(\"a; b\")));
            int MPIX_Comm_agree(MPI_Comm comm, int (*function)(int, void *), int *flag);
            int PMPI_Barrier(MPI_Comm comm);";
        assert_eq!(
            lines(header),
            [
                "MESSAGE(MPI_Barrier, (MPI_Comm comm), (comm))",
                "MESSAGE(MPI_Alltoallw, (const void * sendbuf, const int sendcounts [ ], \
                 const MPI_Datatype types [ ], int ranges [ ] [ 3 ], char * * array_of_argv [ ], \
                 struct tree * tree, unsigned int n), \
                 (sendbuf, sendcounts, types, ranges, array_of_argv, tree, n))",
                "MESSAGE(MPIX_Yield, (void), ())",
                "MESSAGE(MPIX_Comm_agree, (MPI_Comm comm, int ( * function ) ( int , void * ), \
                 int * flag), (comm, function, flag))",
            ]
        );
    }

    #[test]
    fn parameters_without_names_get_some() {
        let header = "int MPI_Send_c(const void *, MPI_Count, const int [], int, \
                      void (*)(int, int), struct tree, const MPI_Comm);";
        assert_eq!(
            lines(header),
            ["MESSAGE(MPI_Send_c, (const void * argument_0, MPI_Count argument_1, \
              const int argument_2 [ ], int argument_3, void ( * argument_4 ) ( int , int ), \
              struct tree argument_5, const MPI_Comm argument_6), (argument_0, argument_1, \
              argument_2, argument_3, argument_4, argument_5, argument_6))"]
        );
    }

    #[test]
    fn other_declarations_are_skipped() {
        let header = "int MPI_Pcontrol(const int level, ...);
                      double MPI_Wtime(void);
                      MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint disp);
                      extern int *MPI_UNWEIGHTED;
                      int QMPI_Send(int tool, int count);";
        assert!(lines(header).is_empty());
    }

    #[test]
    fn functions_that_are_not_known_to_be_local_are_messages() {
        let local = ["MPI_Comm_rank", "MPI_Get_elements_c", "MPI_Wait", "MPI_Type_size_c"];
        assert!(local.into_iter().all(is_local));
        let messages = ["MPI_Get", "MPI_Get_c", "MPI_Comm_split", "MPI_Win_flush", "MPIX_New"];
        assert!(!messages.into_iter().any(is_local));
    }

    #[test]
    fn a_message_of_the_header_is_not_listed_twice() {
        let header = "int MPI_Pready(int partition, MPI_Request request);";
        assert_eq!(messages(header).matches("(MPI_Pready,").count(), 1);
    }
}
